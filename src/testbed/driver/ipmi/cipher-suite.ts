/**
 * Which cipher suite a BMC speaks, found out once and remembered: asking ipmitool to find out costs up to 10 s a command.
 * IPMI 2.0, table 22-20: 17 is HMAC-SHA256 with AES, 3 is HMAC-SHA1 with AES, which every BMC has to have. 0 is no
 * authentication at all and is never tried.
 */
import { mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { z } from 'zod';
import { errnoOf } from '../../../core/errors.js';

const candidates = [17, 3] as const;
export type CipherSuite = (typeof candidates)[number];

const memorySchema = z.object({ cipherSuite: z.union([z.literal(17), z.literal(3)]) });

export class CipherSuites {
  private known: CipherSuite | undefined;
  private isRead = false;

  /** `file`: where what was found outlives this process. */
  constructor(private readonly file: string | undefined) {}

  /** Those to try, in this order: the remembered one first. */
  async inOrder(): Promise<CipherSuite[]> {
    if (!this.isRead) {
      this.known = await this.remembered();
      this.isRead = true;
    }
    const { known } = this;
    return known === undefined
      ? [...candidates]
      : [known, ...candidates.filter((candidate) => candidate !== known)];
  }

  /** The BMC opened a session with it. */
  isProven(suite: CipherSuite): boolean {
    return suite === this.known;
  }

  async remember(suite: CipherSuite): Promise<void> {
    if (suite === this.known) return;
    this.known = suite;
    if (this.file === undefined) return;
    await mkdir(dirname(this.file), { recursive: true });
    const draft = `${this.file}.${String(process.pid)}`;
    await writeFile(draft, `${JSON.stringify({ cipherSuite: suite })}\n`);
    await rename(draft, this.file);
  }

  private async remembered(): Promise<CipherSuite | undefined> {
    if (this.file === undefined) return undefined;
    try {
      return memorySchema.parse(JSON.parse(await readFile(this.file, 'utf8'))).cipherSuite;
    } catch (error) {
      // A memory that is not there or cannot be read costs one more try, and is written anew.
      if (errnoOf(error) === 'ENOENT' || error instanceof SyntaxError || error instanceof z.ZodError) {
        return undefined;
      }
      throw error;
    }
  }
}
