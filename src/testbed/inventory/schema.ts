/** The inventory file as zod sees it, and the shape of a node that the store keeps. */
import { z } from 'zod';
import { secretRefSchema } from './secret.js';
import { namePattern, namesOf, parseAddress, parseMac, parseSize, parseSpeed } from './values.js';

export const backends = ['container', 'libvirt', 'metal', 'cloudlab'] as const;
export const powerDrivers = ['ipmi', 'libvirt', 'cloudlab'] as const;
const diskRoles = ['os', 'data'] as const;

/** A value read by a function of values.ts. What it refuses is told with its fix, and never with the value itself. */
function written<T>(parse: (value: unknown) => T | undefined, what: string, fix: string): z.ZodType<T> {
  return z.unknown().transform((value, context) => {
    const read = parse(value);
    if (read !== undefined) return read;
    context.addIssue({ code: 'custom', message: what, params: { fix } });
    return z.NEVER;
  });
}

const text = (what: string): z.ZodType<string> =>
  written(
    (value) => (typeof value === 'string' && value.trim() !== '' ? value.trim() : undefined),
    `${what} is no text`,
    'Write it in quotes: YAML reads bare digits as a number.',
  );

/** One value, or in an entry of several nodes a list with one for each. */
const eachNode = <T>(schema: z.ZodType<T>): z.ZodType<T[]> =>
  z.preprocess(
    (value: unknown) => (Array.isArray(value) || value === undefined ? value : [value]),
    z.array(schema).min(1),
  );

const size = written(
  parseSize,
  'this is no size',
  'Write a number and a unit, such as 128GiB or 480GB, or a number of bytes.',
);
const secret = written(
  (value) => secretRefSchema.safeParse(value).data,
  'a secret must not stand in the file',
  'Write where it is to be found: {env: NAME} or {file: /absolute/path}.',
);
const tag = z.string().regex(/^[A-Za-z0-9][A-Za-z0-9._:-]*$/);

export const diskFileSchema = z.strictObject({
  serial: eachNode(text('a serial number')).optional(),
  wwn: eachNode(text('a WWN')).optional(),
  size: size.optional(),
  role: z.enum(diskRoles),
});

export const nicFileSchema = z.strictObject({
  mac: eachNode(
    written(
      parseMac,
      'this is not the MAC address of a card',
      'Write six bytes in hexadecimal, such as 02:00:5e:10:00:01.',
    ),
  ),
  role: z.string().regex(namePattern),
  speed: written(parseSpeed, 'this is no speed', 'Write it like 10Gb/s or 100Mb/s.').optional(),
});

export const powerFileSchema = z.strictObject({
  driver: z.enum(powerDrivers).optional(),
  address: eachNode(
    written(
      parseAddress,
      'this is neither an IP address nor a host name',
      'Write the address of the BMC, such as 192.0.2.17.',
    ),
  ).optional(),
  user: text('a user').optional(),
  password: secret.optional(),
});

export const bmcFileSchema = z.strictObject({ firmware: text('a firmware version').optional() });

const shared = {
  backend: z.enum(backends).optional(),
  power: powerFileSchema.optional(),
  images: z.array(z.string().regex(/^[A-Za-z0-9][A-Za-z0-9._:/+-]*$/)).optional(),
  cpus: z.number().int().positive().optional(),
  memory: size.optional(),
  bmc: bmcFileSchema.optional(),
  tags: z.array(tag).optional(),
};

/** What may stand for all nodes of a site; what belongs to one node alone (addresses, disks, cards) may not. */
export const defaultsFileSchema = z.strictObject({
  ...shared,
  power: powerFileSchema.omit({ address: true }).optional(),
});
export type DefaultsFile = z.output<typeof defaultsFileSchema>;

export const nodeFileSchema = z.strictObject({
  name: written(
    namesOf,
    'this is neither a name nor a range',
    'Write a name like n01 (small letters, digits, hyphens), a range like n[01-08] with numbers of equal width, or a list of such.',
  ),
  ...shared,
  disks: z.array(diskFileSchema).optional(),
  nics: z.array(nicFileSchema).optional(),
});
export type NodeFile = z.output<typeof nodeFileSchema>;

export const siteFileSchema = z.strictObject({
  name: z.string().regex(namePattern),
  description: z.string().optional(),
  defaults: defaultsFileSchema.optional(),
  nodes: z.array(nodeFileSchema).min(1),
});

/** The tables of the file by the key they stand under, to name the keys that each knows. */
export const tables: Readonly<Record<string, z.ZodObject>> = {
  '': siteFileSchema,
  defaults: defaultsFileSchema,
  nodes: nodeFileSchema,
  power: powerFileSchema,
  bmc: bmcFileSchema,
  disks: diskFileSchema,
  nics: nicFileSchema,
};

const diskSchema = z.object({
  serial: z.string().optional(),
  wwn: z.string().optional(),
  sizeBytes: z.number().optional(),
  role: z.enum(diskRoles),
});

const nicSchema = z.object({
  /** `aa:bb:cc:dd:ee:ff`. */
  mac: z.string(),
  role: z.string(),
  /** Megabits a second. */
  speedMbps: z.number().optional(),
});

const powerSchema = z.object({
  driver: z.enum(powerDrivers),
  /** Of the BMC. */
  address: z.string().optional(),
  user: z.string().optional(),
  password: secretRefSchema.optional(),
});

/** A node with the defaults of its site. What the inventory does not declare is absent, and is never compared. */
export const siteNodeSchema = z.object({
  /** `local/n01`: site and node. */
  name: z.string(),
  backend: z.string(),
  power: powerSchema.optional(),
  images: z.array(z.string()).optional(),
  cpus: z.number().optional(),
  memoryBytes: z.number().optional(),
  disks: z.array(diskSchema).optional(),
  nics: z.array(nicSchema).optional(),
  bmcFirmware: z.string().optional(),
  tags: z.array(z.string()).optional(),
});
export type SiteNode = z.output<typeof siteNodeSchema>;

/** A site as the store keeps it: references in place of secrets. */
export const siteSchema = z.object({
  name: z.string(),
  description: z.string().optional(),
  /** True for the site that comes with infrabed and is enrolled by itself, as long as nobody adds one of its name. */
  embedded: z.boolean().optional(),
  nodes: z.array(siteNodeSchema),
});
export type Site = z.output<typeof siteSchema>;
