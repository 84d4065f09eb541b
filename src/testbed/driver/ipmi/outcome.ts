/** What became of one run of ipmitool, read from its exit status and from what it prints (lanplus.c, ipmi_raw.c). */

export type Outcome =
  /** `closeLost`: the command was answered, but not the close of the session, which ends by the BMC's own time-out. */
  | { kind: 'done'; stdout: string; closeLost: boolean }
  /** The BMC answered with a completion code (IPMI 2.0, table 5-2): it did not carry the request out. */
  | { kind: 'refused'; completionCode: number; text: string }
  /** The request went out and no reply came back: it may have been carried out. */
  | { kind: 'lost'; text: string }
  /** The account or its privilege was refused. */
  | { kind: 'auth'; text: string }
  /** The BMC does not speak the cipher suite that was asked for. */
  | { kind: 'cipher'; text: string }
  /** Its session table is full (RAKP status 01h, table 13-15). */
  | { kind: 'full'; text: string }
  /** Something answers as a BMC, but no session came about: nothing was requested of it. */
  | { kind: 'no-session'; text: string }
  /** Nothing answers. */
  | { kind: 'silent'; text: string }
  /** It speaks IPMI, but not 2.0. */
  | { kind: 'old'; text: string }
  /** The program ended with a failure of its own; whether a request was carried out is not said. */
  | { kind: 'failed'; text: string };

const noise =
  /^(?:Loading IANA PEN Registry|Running Get |Discovered IPMB|Invalid completion code received|RAW R|tcgetattr|Iana:| [0-9a-f]{2}(?: |$))/;

/** The lines of a standard error that say something, joined by " | ". */
function sentence(stderr: string): string {
  const lines = stderr.split('\n').filter((line) => line.trim() !== '' && !noise.test(line));
  return lines.slice(-3).join(' | ').trim() || 'ipmitool said nothing';
}

const authRefused = [
  /RAKP 2 HMAC is invalid/,
  /RAKP 4 message has invalid integrity check value/,
  /: (?:invalid role|unauthorized role requested|invalid name length|unauthorized name|unauthorized GUID|invalid integrity check value)\b/,
  // With a reason it is the BMC's answer; without one nothing was answered (see `established`).
  /Set Session Privilege Level to \w+ failed: /,
];
const cipherRefused =
  /(?:invalid|no matching) (?:authentication|integrity|confidentiality) (?:algorithm|payload)|no Cipher Suite match|is not what we requested|Unsupported cipher suite ID/;
const rawRefused = /Unable to send RAW command \(.*\brsp=0x([0-9a-f]{1,2})\)/;
const rawLost = /Unable to send RAW command \([^)]*cmd=0x[0-9a-f]+\)/;
const silent = /Get Auth Capabilities error(?!:)|Could not open socket|Address lookup for .* failed/;

/**
 * Only with -v does ipmitool tell a silent BMC from a refused account. A run without it gives `no-session` for both, and
 * whoever made it has to ask with -v before trying again.
 */
export function outcomeOf(run: { exitCode: number; stdout: string; stderr: string }): Outcome {
  const { exitCode, stdout, stderr } = run;
  const text = sentence(stderr);
  if (exitCode === 0) {
    return {
      kind: 'done',
      stdout,
      closeLost: /Close Session command failed|Failed to Close Session/.test(stderr),
    };
  }
  if (/insufficient resources for (?:session|role)/.test(stderr)) return { kind: 'full', text };
  if (authRefused.some((pattern) => pattern.test(stderr))) return { kind: 'auth', text };
  if (/does not support IPMI v2/.test(stderr)) return { kind: 'old', text };
  const isEstablished = !/Unable to establish|Set Session Privilege Level to \w+ failed$/m.test(stderr);
  if (!isEstablished) {
    if (cipherRefused.test(stderr)) return { kind: 'cipher', text };
    if (silent.test(stderr)) return { kind: 'silent', text };
    return { kind: 'no-session', text };
  }
  const refused = rawRefused.exec(stderr);
  if (refused?.[1] !== undefined) {
    return { kind: 'refused', completionCode: Number.parseInt(refused[1], 16), text };
  }
  if (rawLost.test(stderr)) return { kind: 'lost', text };
  return { kind: 'failed', text };
}
