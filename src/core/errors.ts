/**
 * The one base class of every error a person may meet, and the catalogue of its codes.
 * docs/errors.md describes each code; a test holds the two together.
 */

/** Every stable code, with the exit status the command line gives for it (2 wrong usage, 3 infrastructure). */
export const errorCatalogue = {
  IB_USAGE: 2,
  IB_INTERNAL: 3,
  IB_CANCELLED: 3,
  IB_INTERRUPTED: 3,
  IB_TIMEOUT: 3,
  IB_NOT_ROOT: 3,
  IB_PROGRAM_MISSING: 3,
  IB_PROGRAM_FAILED: 3,
  IB_DISK_FULL: 3,
  IB_STATE_DIR: 3,
  IB_STORE: 3,
  IB_STORE_NEWER: 3,
  IB_SETTINGS: 2,
  IB_LEASE_CONFLICT: 3,
  IB_LEASE_UNKNOWN: 2,
  IB_LEASE_ENDED: 3,
  IB_LEASE_LIMIT: 3,
  IB_LEASE_INVALID: 2,
  IB_CLOCK_BACK: 3,
  IB_NOT_ALLOWED: 3,
  IB_USER_UNKNOWN: 2,
  IB_SITE_INVALID: 2,
  IB_SITE_UNKNOWN: 2,
  IB_SERVER: 3,
  IB_NOT_ENOUGH_NODES: 3,
  IB_HOST_UNFIT: 3,
  IB_IMAGE_BUILD: 3,
  IB_LAYER_UNKNOWN: 2,
  IB_CLUSTER_UNKNOWN: 2,
  IB_NODE_UNKNOWN: 2,
  IB_NODE_UNREACHABLE: 3,
  IB_NODE_OFF: 3,
  IB_NODE_FAILED: 3,
  IB_NODE_STATE: 3,
  IB_POWER: 3,
  IB_BMC: 3,
  IB_BMC_UNREACHABLE: 3,
  IB_BMC_AUTH: 3,
  IB_BMC_NONE: 2,
  IB_SSH_AUTH: 3,
  IB_SSH_HOST_KEY: 3,
  IB_OUTPUT_LIMIT: 3,
  IB_PROVISION: 3,
  IB_TASK_UNKNOWN: 2,
  IB_TASK_INVALID: 2,
  IB_CHECKER_UNKNOWN: 2,
  IB_CHECKER_FAILED: 3,
  IB_AGENT_UNKNOWN: 2,
  IB_SANDBOX: 3,
  IB_BUNDLE_INVALID: 2,
  IB_TRIAL_UNKNOWN: 2,
  IB_LEDGER_INVALID: 3,
  IB_ADMISSION: 3,
} as const;

export type ErrorCode = keyof typeof errorCatalogue;

export function isErrorCode(text: string): text is ErrorCode {
  return Object.hasOwn(errorCatalogue, text);
}

export interface ErrorOptions {
  /** What the person can do about it: one imperative sentence. */
  hint?: string;
  cause?: unknown;
  /** Fields for the log and for --json; secrets never go in here. */
  details?: Record<string, unknown>;
}

/** An error with a stable code, a sentence for people and a hint what to do. */
export class InfrabedError extends Error {
  readonly code: ErrorCode;
  readonly hint: string | undefined;
  readonly details: Record<string, unknown>;

  constructor(code: ErrorCode, message: string, options: ErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = 'InfrabedError';
    this.code = code;
    this.hint = options.hint;
    this.details = options.details ?? {};
  }

  /** Exit status of the command line for this error. */
  get exitStatus(): number {
    return errorCatalogue[this.code];
  }
}

/** True if `error` is an InfrabedError, of the given code where one is given. */
export function isInfrabedError(error: unknown, code?: ErrorCode): error is InfrabedError {
  return error instanceof InfrabedError && (code === undefined || error.code === code);
}

/** The sentence in any thrown value. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** The errno name (ENOENT, ENOSPC, ...) of a system error, or undefined. */
export function errnoOf(error: unknown): string | undefined {
  const code = (error as { code?: unknown } | null)?.code;
  return typeof code === 'string' ? code : undefined;
}
