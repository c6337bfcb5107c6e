// The chart of the chosen accounts, and what they held under the pointer.
import {
  MOST,
  about,
  again,
  between,
  go,
  inkOf,
  isFrozen,
  panBy,
  span,
  state,
  unit,
  value,
  when,
  written,
  zoom,
  zoomBy,
} from "./address.js";
import { draw } from "./chart.js";
import { firstOf, get } from "./data.js";
import { at, button, linked, make, refill, refusal, settled } from "./dom.js";
import { explain, open } from "./panels.js";
import { WIDEST, find, seriesOf } from "./search.js";
import { account, unknown } from "./text.js";

const FIRST = 3; // lines that the page begins with
let mark = () => {};
let lines = [];
let cells = new Map(); // of each account, what it held and how that is known
let last = 0;
let inChart; // what is asked for in it

const nameOf = (key) => account(key).label;

export const showLegend = () => {
  cells = new Map();
  const line = (key, n) => {
    const { label, ids } = account(key);
    const held = linked("", isFrozen ? undefined : () => explain(key, last)) || make("span");
    cells.set(key, [held, make("span")]);
    const swatch = make("span", { class: `swatch ${inkOf(n)}`, "aria-hidden": "true" });
    const others = state.accounts.filter((one) => one !== key);
    const remove = () => go({ account: others, none: "1" });
    const [own, how] = cells.get(key);
    return make(
      "tr",
      {},
      make(
        "th",
        { scope: "row" },
        swatch,
        button(label, () => open(key), { class: "link", title: ids }),
      ),
      make("td", { class: "n" }, own),
      make("td", { class: "how" }, how),
      make("td", {}, button("×", remove, { class: "remove", "aria-label": `Remove ${label}` })),
    );
  };
  const rows = state.accounts.map(line);
  const showLargest = button("Show the largest", () => go({ account: null, none: null }));
  const none = make("p", { class: "tools note" }, "Add an account above, or", showLargest);
  const caption = make("caption", { id: "moment" });
  const isEmpty = state.chosen && !rows.length;
  refill(at("readout"), [isEmpty ? none : make("table", {}, caption, make("tbody", {}, ...rows))]);
};

/** Return what an account held at a moment, and how that is known; `null` where its drawn rows don't tell. */
const heldAt = ({ times, balances, rows, opening, missing, from, to }, time) => {
  if (missing) return [unknown, missing];
  if (time >= about.end) return [unknown, "after the end of the data"];
  const place = times.findLastIndex((one) => one <= time);
  const since = times[place];
  const isWhole = rows === times.length || since === time || place === times.length - 1;
  if (time < from || time >= to || !isWhole) return null;
  if (place < 0)
    return [unknown, times.length ? "before its first row" : "no row of it up to then"];
  if (balances[place] === null) return [unknown, `since ${when(since)}`];
  if (place === 0 && opening) return [written(balances[place]), "since before the data begins"];
  return [written(balances[place]), since === time ? "changed then" : `since ${when(since)}`];
};

const put = (key, texts) => {
  cells.get(key)?.forEach((cell, n) => {
    cell.textContent = texts[n];
    if (!n) cell.classList.toggle("long", texts[n].length > 24);
  });
};

const tell = (time) => {
  last = time;
  const found = lines.map((line) => [line.key, heldAt(line, time)]);
  const asking = isFrozen ? "only some of its rows are in this page" : "looking it up";
  for (const [key, texts] of found) put(key, texts ?? ["…", asking]);
  if (found.some(([, texts]) => !texts) && !isFrozen) ask(time);
  if (lines.length) at("moment").textContent = `${when(time)} UTC, in ${unit()}`;
};

const ask = settled(async (time) => {
  const found = await getLines([time, time + 1], 1, "moment").catch((error) => error);
  if (time !== last || found.name === "AbortError") return;
  const isFailure = found instanceof Error;
  for (const line of isFailure ? lines : found) {
    put(line.key, isFailure ? ["…", found.message] : heldAt(line, time));
  }
}, 60);

/** Return the lines of the chosen accounts; a report has each alone, over all of the time. */
const getLines = async ([from, to], width, as) => {
  const keys = state.accounts;
  if (!keys.length) return [];
  if (!isFrozen) {
    const { series } = await get("series", seriesOf(keys, [from, to], width), as);
    return series.map((line) => ({ ...line, from, to }));
  }
  const none = { times: [], balances: [], rows: 0, missing: "its history is not in this report" };
  const whole = { from: -Infinity, to: Infinity };
  const one = async (key) => {
    const asked = get("series", seriesOf([key], [about.start, about.end], WIDEST));
    const [line] = await asked.then(({ series }) => series).catch(() => [none]);
    return { ...line, key, ...whole };
  };
  return Promise.all(keys.map(one));
};

export const drawLines = () => {
  const [start, end] = span();
  lines = lines.filter(({ key }) => state.accounts.includes(key));
  const ends = lines.map(({ key, balances }) => {
    const [first, final] = [0, -1].map((n) => written(balances.at(n) ?? null));
    return `${nameOf(key)}: ${first} at first, ${final} at last`;
  });
  const series = lines.map(({ key, times, balances, to }) => ({
    ink: inkOf(state.accounts.indexOf(key)),
    name: nameOf(key),
    times,
    values: balances.map(value),
    to,
  }));
  mark = draw(at("chart"), {
    series,
    start,
    end,
    gaps: about.gaps,
    until: about.end,
    marked: state.when,
    empty: state.chosen && !state.accounts.length ? "No account is chosen." : "",
    label: `Balances in ${unit()}, ${between([start, end])} UTC. ${ends.join("; ")}`,
    onrange: zoom,
    onwheel: zoomBy,
    onpan: panBy,
    onhover: tell,
    onall: () => go({ range: "ALL" }),
    onpick: isFrozen ? undefined : (time) => go({ at: time }),
  });
  tell(Math.round(Math.min(last || end, end - 1, about.end - 1)));
};

/** Choose the largest holders: people, beside whom a treasury would hide all else. */
const chooseFirst = async () => {
  const asset = state.asset.id;
  const keys = (await find("", "first")).map(([key]) => key);
  const people = keys.filter((key) => account(key).party !== "network");
  const given = firstOf().filter((key) => account(key).asset === asset);
  const largest = [...new Set([...people, ...keys])].slice(0, FIRST);
  const wanted = given.length ? given.slice(0, MOST) : largest;
  if (state.asset.id !== asset || state.chosen) return;
  go({ asset, account: wanted, none: wanted.length ? null : "1" }, true);
};

const showLines = async () => {
  const wanted = JSON.stringify([state.accounts, span()]);
  if (!state.chosen) return chooseFirst();
  if (inChart === wanted) return;
  inChart = wanted;
  const width = Math.min(Math.max(at("chart").clientWidth, 100), WIDEST);
  lines = await getLines(span().map(Math.round), width).catch((error) => {
    if (inChart === wanted) inChart = null;
    throw error;
  });
  drawLines();
};

/** Show the lines of the chosen accounts, or why they can't be shown. */
export const showChart = async () => {
  const error = await showLines().then(
    () => null,
    (failure) => failure,
  );
  if (error?.name === "AbortError") return;
  at("failed").replaceChildren(...(error ? [refusal(error, again)] : []));
  at("failed").hidden = !error;
};

export const keysOfChart = (event) => {
  const [start, end] = span();
  const rows = lines.flatMap(({ times }) => times).sort((a, b) => a - b);
  const by = { "+": 0.5, "-": 2 }[event.key];
  const pan = { PageUp: -0.5, PageDown: 0.5 }[event.key];
  if (by) zoomBy(by, last);
  else if (pan) panBy(pan);
  else if (event.key === "Enter" && !isFrozen) go({ at: last });
  else if (event.key === "0") go({ range: "ALL" });
  else if (event.key === "ArrowRight") tell(rows.find((time) => time > last && time < end) ?? last);
  else if (event.key === "ArrowLeft")
    tell(rows.findLast((time) => time < last && time >= start) ?? last);
  else return;
  event.preventDefault();
  mark(last);
};
