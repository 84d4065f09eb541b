/** How an error travels: its HTTP status, and its code, sentence, hint and details without secrets or stack. */
import { InfrabedError, isInfrabedError, messageOf, type ErrorCode } from '../../core/errors.js';
import { redactor } from '../../core/log.js';

/** Where neither "400 for a wrong use" nor "500 for what went wrong here" tells enough. */
const statuses: Partial<Record<ErrorCode, number>> = {
  IB_NOT_ALLOWED: 403,
  IB_LEASE_UNKNOWN: 404,
  IB_USER_UNKNOWN: 404,
  IB_SITE_UNKNOWN: 404,
  IB_CLUSTER_UNKNOWN: 404,
  IB_NODE_UNKNOWN: 404,
  IB_TASK_UNKNOWN: 404,
  IB_TRIAL_UNKNOWN: 404,
  IB_LEASE_CONFLICT: 409,
  IB_LEASE_ENDED: 409,
  IB_LEASE_LIMIT: 409,
  IB_NOT_ENOUGH_NODES: 409,
  IB_NODE_STATE: 409,
  IB_CANCELLED: 503,
  IB_STORE: 503,
  IB_CLOCK_BACK: 503,
  IB_TIMEOUT: 504,
  IB_DISK_FULL: 507,
};

export interface ErrorBody {
  error: { code: string; message: string; hint: string | null; details: Record<string, unknown> };
}

export interface HttpError {
  status: number;
  told: InfrabedError;
}

/** What the caller is told. What no one foresaw is told by the number of its request alone: the log has the rest. */
export function httpError(error: unknown, request: string): HttpError {
  if (isInfrabedError(error)) {
    return { status: statuses[error.code] ?? (error.exitStatus === 2 ? 400 : 500), told: error };
  }
  // Of fastify: a body that is too large, no JSON, of another type.
  const status = (error as { statusCode?: unknown } | null)?.statusCode;
  if (typeof status === 'number' && status >= 400 && status < 500) {
    return { status, told: new InfrabedError('IB_USAGE', messageOf(error), { cause: error }) };
  }
  const told = new InfrabedError('IB_INTERNAL', 'An error inside the server.', {
    hint: `This is a defect; the server's log has more under the request ${request}.`,
    details: { request },
    cause: error,
  });
  return { status: 500, told };
}

export function errorBody({ code, message, hint, details }: InfrabedError): ErrorBody {
  return redactor.redactDeep({ error: { code, message, hint: hint ?? null, details } });
}
