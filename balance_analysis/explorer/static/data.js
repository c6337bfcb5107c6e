// Where views come from: the service, or what is frozen into this file.

let frozen = null;

/** Open what is frozen into the page, if anything is. */
export const thaw = async () => {
  const held = document.getElementById("frozen");
  if (!held) return false;
  const bytes = Uint8Array.from(atob(held.textContent), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  frozen = await new Response(stream).json();
  return true;
};

/** Return what is said of the frozen data, and which accounts it begins with. */
export const told = () => frozen ?? { said: "", first: [] };

const asked = new Map();
let version = null; // of the data that the page shows: all of it is of one state

/** Return where the data of a view is. */
export const addressOf = (view, parameters) => `explore/${view}?${new URLSearchParams(parameters)}`;

/** Return a view; parameters are names and values, in the order that the view tells them. The last one asked for as something counts. */
export const get = async (view, parameters = [], as = view) => {
  if (frozen) {
    const found = frozen.views[JSON.stringify([view, ...parameters.map(([, value]) => value)])];
    if (found?.refused) throw new Error(found.refused);
    if (!found) throw new Error("This page is frozen, and this part of the data is not in it.");
    return found;
  }
  asked.get(as)?.abort();
  const turn = new AbortController();
  asked.set(as, turn);
  const state = version && !["about", "version"].includes(view) ? [["version", version]] : [];
  const answer = await fetch(addressOf(view, [...parameters, ...state]), { signal: turn.signal }).catch((error) => {
    throw error.name === "AbortError" ? error : new Error("The service doesn't answer.");
  });
  const body = await answer.json().catch(() => null);
  if (answer.status === 409) return new Promise(() => location.reload()); // that state is gone
  if (!answer.ok) throw new Error(body?.details?.[0]?.inner ?? `The service answered ${answer.status}.`);
  if (view === "about") ({ version } = body);
  return body;
};
