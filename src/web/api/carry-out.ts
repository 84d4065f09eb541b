/** The one way in which an operation is carried out, whoever the caller is: role, input, handler, output. */
import { z } from 'zod';
import type { Actor } from '../../core/actor.js';
import { InfrabedError } from '../../core/errors.js';
import type { Desk, Operation } from './operation.js';

/**
 * Checks the role and the input, does it, and checks the output.
 * @throws InfrabedError IB_NOT_ALLOWED, IB_USAGE for an input that does not fit, and what the operation throws.
 */
export async function carryOut<I, O>(
  operation: Operation<I, O>,
  desk: Desk,
  input: unknown,
  actor: Actor,
): Promise<O> {
  assertRole(operation, actor);
  const answer = await operation.handle(desk, parseInput(operation, input), actor);
  const parsed = operation.output.safeParse(answer);
  if (!parsed.success) {
    throw new InfrabedError('IB_INTERNAL', `${operation.name} answered in another shape than it says.`, {
      cause: parsed.error,
    });
  }
  return parsed.data;
}

/** @throws InfrabedError IB_NOT_ALLOWED when this is the operator's to do. */
export function assertRole(
  operation: Pick<Operation<unknown, unknown>, 'name' | 'role'>,
  actor: Actor,
): void {
  if (operation.role === 'user' || actor.role === 'operator') return;
  throw new InfrabedError('IB_NOT_ALLOWED', `${operation.name} is the operator's to do.`, {
    hint: 'Ask an operator of this server.',
    details: { operation: operation.name, actor: actor.name },
  });
}

/** The input as the handler wants it; keys that the operation does not know are refused. */
export function parseInput<I>(operation: Pick<Operation<I, unknown>, 'name' | 'input'>, input: unknown): I {
  const parsed = strict(operation.input).safeParse(input);
  if (parsed.success) return parsed.data;
  throw new InfrabedError('IB_USAGE', `The input of ${operation.name} is wrong: ${sentence(parsed.error)}.`, {
    hint: 'The --help of the command says what it takes, and /v1/openapi.json of a server.',
    cause: parsed.error,
    details: { operation: operation.name },
  });
}

/** A misspelt key that was dropped in silence would be a wish that nobody hears. */
function strict<I>(schema: z.ZodType<I>): z.ZodType<I> {
  return schema instanceof z.ZodObject && schema.def.catchall === undefined
    ? (schema.strict() as unknown as z.ZodType<I>)
    : schema;
}

function sentence(error: z.ZodError): string {
  return error.issues
    .map(({ path, message }) => (path.length === 0 ? message : `${path.map(String).join('.')}: ${message}`))
    .join('; ')
    .replace(/\.$/, '');
}
