// Fetch views from the service, or take them from the data frozen into this file.
import { printable } from "./text.js";

let frozen = null;

/** Open the frozen data, if there is any. */
export const thaw = async () => {
  const held = document.getElementById("frozen");
  if (!held) return false;
  const bytes = Uint8Array.from(atob(held.textContent), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  frozen = await new Response(stream).json();
  return true;
};

/** Return the accounts that a report begins with. */
export const firstOf = () => frozen?.first ?? [];

/** Return the accounts whose history a report has, with their last balances. */
export const histories = () =>
  Object.entries(frozen.views)
    .filter(([name]) => name.startsWith('["series"'))
    .map(([, { series }]) => [series[0].key, series[0].balances.at(-1) ?? null]);

const turns = new Map();
let version = null; // the version of the data: the whole page shows one state

const failure = (message, isFinal) => Object.assign(new Error(printable(message)), { isFinal });

const kept = (view, parameters) =>
  frozen.views[JSON.stringify([view, ...parameters.map(([, value]) => String(value))])];

/** Return whether a view is available: a report lacks some. */
export const has = (view, parameters) => !frozen || Boolean(kept(view, parameters));

const thawed = (view, parameters) => {
  const content = kept(view, parameters);
  if (!content) throw failure("This report doesn't have that part of the data.", true);
  if (content.refused) throw failure(content.refused, true);
  return content;
};

/** Return a view; parameters are names and values, in the view's order. A newer request with the same `as` cancels an older one. */
export const get = async (view, parameters = [], as = view) => {
  if (frozen) return thawed(view, parameters);
  turns.get(as)?.abort();
  const turn = new AbortController();
  turns.set(as, turn);
  const isOfState = version && !["about", "version"].includes(view);
  const all = [...parameters, ...(isOfState ? [["version", version]] : [])];
  const answer = await fetch(`explore/${view}?${new URLSearchParams(all)}`, {
    signal: turn.signal,
  }).catch((error) => {
    throw error.name === "AbortError" ? error : failure("The service doesn't answer.", false);
  });
  const body = await answer.json().catch(() => null);
  if (answer.status === 409) return new Promise(() => location.reload()); // that state is gone
  if (!answer.ok) {
    const said = body?.details?.[0]?.inner ?? `The service answered ${answer.status}.`;
    throw failure(said, answer.status < 500);
  }
  if (view === "about") ({ version } = body);
  return body;
};
