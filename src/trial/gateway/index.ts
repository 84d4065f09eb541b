/**
 * The gateway: the agent's only route to the nodes. It ends the agent's SSH connections, logs in on the node once
 * for each of them, and writes every request on record before it forwards it.
 */
import { TrialGateway } from './gateway.js';
import type { Gateway, GatewayOptions } from './options.js';

export type { Gatekeeper } from './channel.js';
export type { Gateway, GatewayLimits, GatewayNode, GatewayOptions, GatewaySummary } from './options.js';

/**
 * Opens the sockets. The caller closes the gateway.
 * @throws InfrabedError IB_USAGE for a bad key, a bad node name or too long a socket path.
 */
export async function startGateway(options: GatewayOptions): Promise<Gateway> {
  const gateway = new TrialGateway(options);
  await gateway.listen();
  return gateway;
}
