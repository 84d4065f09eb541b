/** report.html: one file that a person opens, without any request to elsewhere. */
import { join } from 'node:path';
import { writeFileAtomic } from '../../core/disk.js';
import { bundleFiles } from '../../record/bundle/schema.js';
import type { TrialScore } from '../score/score.js';
import { readContent } from './content.js';
import { page } from './page.js';

/** The whole page as text. @throws InfrabedError IB_BUNDLE_INVALID. */
export async function htmlReport(bundleDir: string, score: TrialScore): Promise<string> {
  return page(await readContent(bundleDir, score));
}

/** Writes report.html into the bundle and returns its path. @throws InfrabedError IB_BUNDLE_INVALID, IB_DISK_FULL. */
export async function writeHtmlReport(bundleDir: string, score: TrialScore): Promise<string> {
  const path = join(bundleDir, bundleFiles.report);
  await writeFileAtomic(path, await htmlReport(bundleDir, score));
  return path;
}
