// The child process of a task's own checker: loads the module and calls one of its parts.
// Usage: node local-checker-host.mjs describe|with|evidence|judge|gather FILE
import { readFileSync } from 'node:fs';
import { pathToFileURL } from 'node:url';

const [part, file] = process.argv.slice(2);
const answerTo = process.stdout.write.bind(process.stdout);
// What the module prints is not the answer.
process.stdout.write = process.stderr.write.bind(process.stderr);

function sentence(error) {
  return error instanceof Error ? `${error.name}: ${error.message}` : String(error);
}

async function load() {
  let module;
  try {
    module = (await import(pathToFileURL(file).href)).default;
  } catch (error) {
    throw new Error(`the module cannot be loaded (${sentence(error)})`, { cause: error });
  }
  if (module === null || typeof module !== 'object')
    throw new Error('the module has no default export that is an object');
  for (const name of ['gather', 'judge']) {
    if (typeof module[name] !== 'function') throw new Error(`the default export has no function "${name}"`);
  }
  return module;
}

const parts = {
  describe: (module) => ({
    summary: typeof module.summary === 'string' ? module.summary : null,
    hasWith: typeof module.with === 'function',
    hasEvidence: typeof module.evidence === 'function',
  }),
  with: (module, value) => module.with(value),
  evidence: (module, value) => module.evidence(value),
  judge: (module, { evidence, parameters }) => module.judge(evidence, parameters),
};

function nodeApi({ node, nodes, moment }) {
  const waiting = new Map();
  let next = 0;
  process.on('message', (message) => {
    const request = waiting.get(message.id);
    if (message.type !== 'answer' || request === undefined) return;
    waiting.delete(message.id);
    if (message.error === undefined) request.resolve(message.value);
    else request.reject(new Error(message.error));
  });
  const ask = (fields) =>
    new Promise((resolve, reject) => {
      waiting.set(next, { resolve, reject });
      process.send({ id: next++, ...fields });
    });
  return {
    node,
    nodes,
    moment,
    exec: (argv, { on = null, ...options } = {}) =>
      ask({ type: 'exec', node: on, command: { argv, ...options } }),
    read: (path, { on = null } = {}) => ask({ type: 'read', node: on, path }),
  };
}

async function gather() {
  const request = await new Promise((resolve) => process.once('message', resolve));
  try {
    const module = await load();
    const value = await module.gather(nodeApi(request), request.parameters);
    process.send({ type: 'done', value: value ?? null });
  } catch (error) {
    process.send({ type: 'failed', error: sentence(error) });
  }
}

if (part === 'gather') await gather();
else {
  let answer;
  try {
    const module = await load();
    answer = { value: (await parts[part](module, JSON.parse(readFileSync(0, 'utf8')))) ?? null };
  } catch (error) {
    answer = { error: sentence(error) };
  }
  // The end of the process must not cut the answer off, and nothing the module left behind may keep it alive.
  answerTo(`\n${JSON.stringify(answer)}\n`, () => process.exit(0));
}
