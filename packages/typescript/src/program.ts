// Finds the program keepwatch.
import { execFile } from 'node:child_process';
import { constants } from 'node:fs';
import { access, stat } from 'node:fs/promises';
import { delimiter, resolve } from 'node:path';
import { promisify } from 'node:util';

/** The version of this package. */
export const version = '0.1.0';

/** The program cannot be started, or has ended with an error. Its message is the program's last one. */
export class KeepwatchError extends Error {
  override name = 'KeepwatchError';
  /** The exit code, or the name of the signal; undefined if the program was not started. */
  readonly code: number | NodeJS.Signals | undefined;

  constructor(message: string, code?: number | NodeJS.Signals) {
    super(message);
    this.code = code;
  }
}

const checked = new Map<string, Promise<void>>();

/**
 * Returns the path of the program: the argument, or the environment variable KEEPWATCH, or keepwatch on the PATH.
 * Rejects with a KeepwatchError if it is missing, or the release of another minor version than this package.
 */
export async function findProgram(program?: string): Promise<string> {
  const wanted = program || process.env['KEEPWATCH'] || 'keepwatch';
  const folders = wanted.includes('/') ? [''] : (process.env['PATH'] ?? '').split(delimiter);
  for (const folder of folders) {
    const path = resolve(folder, wanted); // without a slash, spawn would look it up in PATH again
    if (!(await isProgram(path))) continue;
    let check = checked.get(path);
    if (!check) checked.set(path, (check = checkVersion(path)));
    await check;
    return path;
  }
  throw new KeepwatchError(
    `${wanted} is no program: install keepwatch v${minor(version)}, and put it on the PATH ` +
      'or set KEEPWATCH to its path; see https://github.com/keepwatch/keepwatch#install',
  );
}

async function isProgram(path: string): Promise<boolean> {
  try {
    await access(path, constants.X_OK);
    return (await stat(path)).isFile();
  } catch {
    return false;
  }
}

async function checkVersion(program: string): Promise<void> {
  let printed = '';
  try {
    printed = (await promisify(execFile)(program, ['version'])).stdout;
  } catch {
    // it is no keepwatch
  }
  if (!printed.startsWith('keepwatch ')) {
    throw new KeepwatchError(
      `${program} is not keepwatch: ${program} version printed ${JSON.stringify(printed.slice(0, 80))}`,
    );
  }
  const release = /^keepwatch v(\d+\.\d+\.\d+) /.exec(printed)?.[1]; // not of a build from a commit
  if (release && minor(release) !== minor(version)) {
    throw new KeepwatchError(
      `${program} is keepwatch v${release}, but this package is made for v${minor(version)}: ` +
        `install keepwatch v${minor(version)}, or version ${minor(release)} of the package`,
    );
  }
}

function minor(of: string): string {
  return of.slice(0, of.lastIndexOf('.'));
}
