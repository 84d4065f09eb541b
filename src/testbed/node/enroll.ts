/** Takes the nodes of a site into the store, once. */
import type { Kysely } from 'kysely';
import type { Clock } from '../../core/clock.js';
import type { Database } from '../../record/store/schema.js';
import type { Site } from '../inventory/inventory.js';
import { neverMadeProof } from './clean-proof.js';
import { transition } from './transition.js';

/**
 * Enrols the nodes of a site that the store does not know yet. A container node is made anew for each lease, so that
 * an enrolled one has nothing to be cleaned of and is available at once; any other stays `enrolled` until it is cleaned.
 * Call it inside a transaction: two controllers may start at once.
 */
export async function enrollSite(db: Kysely<Database>, site: Site, clock: Clock): Promise<void> {
  const known = await db.selectFrom('nodes').select('name').where('site', '=', site.name).execute();
  const names = new Set(known.map((row) => row.name));
  const fresh = site.nodes.filter((node) => !names.has(node.name));
  if (fresh.length === 0) return;
  const inventory = JSON.stringify(site);
  await db
    .insertInto('sites')
    .values({ name: site.name, inventory })
    .onConflict((conflict) => conflict.column('name').doUpdateSet({ inventory }))
    .execute();
  for (const { name, backend } of fresh) {
    await db
      .insertInto('nodes')
      .values({ name, backend, site: site.name, state: 'enrolled', fault: null, lease: null })
      .execute();
    if (backend !== 'container') continue;
    await transition(db, name, 'cleaning', { clock });
    await transition(db, name, 'available', { clean: neverMadeProof(backend), clock });
  }
}
