// The calls to the server, or to the answers kept in a page that was exported to one file.
//
// An exported page has <script type="application/json" id="answers">: an object from the paths
// below to their answers; films and genomes are base64 text. The page asks for:
//   /api/runs/RUN                                            Run, Lineage, Individual, Population
//   /api/runs/RUN/curves?points=2000                         Run
//   /api/runs/RUN/bands?points=200                           Run (with "read": 1)
//   /api/runs/RUN/workers                                    Run
//   /api/runs/RUN/lineage/ID                                 Lineage (with "read": 1)
//   /api/runs/RUN/individuals/ID                             Individual (with "read": 1)
//   /api/runs/RUN/individuals/ID/film?seed=0&pictures=20000  Individual, optional
//   /api/runs/RUN/individuals/ID/weights                     Individual, optional
//   /api/runs/RUN/individuals/ID/genome                      Individual, optional
//   /api/runs/RUN/population/GENERATION?x=NAME&y=NAME        Population, optional
// RUN and ID are whole keys. Links to what is not there are left out, where optional.

const kept = document.getElementById("answers");

/** The answers kept in this page by path, or null where a server answers. */
export const answers = kept ? JSON.parse(kept.textContent) : null;

/** A call that failed: the sentence the server gave, and its status. */
export class CallError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

/** The path of a run, or of something below it. */
export function runPath(run, ...parts) {
  return ["/api/runs", run, ...parts].map((part) => String(part)).join("/");
}

/** The path of an individual's film. */
export function filmPath(run, id, seed = 0, pictures = 20000) {
  return `${runPath(run, "individuals", id, "film")}?seed=${seed}&pictures=${pictures}`;
}

/** Whether something can be asked for: always of a server, only what was kept of a file. */
export function available(path) {
  return answers === null || Object.hasOwn(answers, path);
}

/** The kept paths that begin so. */
export function keptPaths(start) {
  return Object.keys(answers ?? {}).filter((path) => path.startsWith(start));
}

/** The JSON answer to a path. */
export async function get(path, signal) {
  if (answers) return keptAnswer(path);
  const response = await call(path, { signal });
  const text = await response.text();
  performance.clearMarks(path);
  performance.mark(path);  // when the answer had arrived, for measuring what becomes of it
  return JSON.parse(text);
}

/** The stream of a film: of an individual by its path, or of a genome file by its bytes. */
export async function filmStream(path, body, signal) {
  if (answers) return new Blob([bytesOf(keptAnswer(path))]).stream();
  const response = await call(path, body ? { method: "POST", body, signal } : { signal });
  return response.body;
}

/** The genome file of an exported page as [name, blob]. */
export function keptGenome(path, id) {
  const bytes = bytesOf(keptAnswer(path));
  const ending = bytes[0] === 0x7b ? "json" : "safetensors";
  return [`${id}.${ending}`, new Blob([bytes])];
}

/** Hand the token in; the server sets a cookie. */
export async function login(token) {
  const headers = { "Content-Type": "application/json" };
  await call("/api/login", { method: "POST", headers, body: JSON.stringify({ token }) }, false);
}

async function call(path, options, ask = true) {
  let response;
  try {
    response = await fetch(path, { credentials: "same-origin", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new CallError("The dashboard does not answer; is it still running?", 0);
  }
  if (response.ok) return response;
  if (response.status === 401 && ask) document.dispatchEvent(new Event("login-needed"));
  let detail = null;
  try {
    detail = (await response.json()).detail;
  } catch {
    detail = null;
  }
  const plainly = `The dashboard answered ${response.status}.`;
  throw new CallError(typeof detail === "string" ? detail : plainly, response.status);
}

function keptAnswer(path) {
  if (Object.hasOwn(answers, path)) return answers[path];
  throw new CallError("This is not part of the exported page; the dashboard shows it.", 404);
}

function bytesOf(base64) {
  return Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
}

/** Call `work` now and every so many seconds while the page is seen, until the signal. */
export async function poll(seconds, work, signal) {
  while (!signal.aborted) {
    await work();
    if (answers) return;
    await pause(seconds, signal);
    if (document.hidden) await shown(signal);
  }
}

/** Wait so many seconds, or until the signal. */
export function pause(seconds, signal) {
  return new Promise((resolve) => {
    const ended = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", ended);
      resolve();
    };
    const timer = setTimeout(ended, seconds * 1000);
    signal.addEventListener("abort", ended);
  });
}

function shown(signal) {
  return new Promise((resolve) => {
    const ended = () => {
      document.removeEventListener("visibilitychange", ended);
      signal.removeEventListener("abort", ended);
      resolve();
    };
    document.addEventListener("visibilitychange", ended);
    signal.addEventListener("abort", ended);
  });
}
