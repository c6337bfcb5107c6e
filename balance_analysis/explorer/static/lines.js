// The chart of the chosen accounts, their balances under the pointer, and the search for more.
import { MOST, about, add, choose, explain, go, isFrozen, open, span, state } from "./address.js";
import { draw } from "./chart.js";
import { firstOf, get, histories } from "./data.js";
import { at, button, hear, make, newest, refill, settled } from "./dom.js";
import { account, hasWords, searched } from "./names.js";
import { inkOf, link, linked, refusal, swatch, unbroken } from "./parts.js";
import { between, panBy, when, zoom, zoomBy } from "./range.js";
import { printable, unknown } from "./text.js";
import { unit, value, written } from "./unit.js";

/** Return the keys and balances of accounts that have each word of a text, the largest first. */
const find = async (text, as) => {
  const asset = ["asset", state.asset.id];
  if (!isFrozen) return (await get("accounts", [asset, ["text", text]], as)).accounts.rows;
  const isOurs = ([key]) => account(key).asset === state.asset.id && hasWords(searched(key), text);
  return histories().filter(isOurs);
};

/** Return the parameters of an account's line. */
const seriesOf = (keys, [start, end], width) => [
  ...keys.map((key) => ["account", key]),
  ...Object.entries({ start, end, width }),
];
const WIDEST = 4000;

const field = () => at("find");
let isWanted = false; // ignore answers that arrive after the search is closed

const optionsOf = async (text) => {
  const has = (one) => hasWords(`${one.label} ${one.name} ${one.id}`, text);
  const assets = about.assets.filter((one) => text && one.id !== state.asset.id && has(one));
  const others = assets.map((one) => [`asset ${one.label}`, printable(one.id), () => choose(one)]);
  const matches = await find(text, "find").catch((error) => error);
  if (matches instanceof Error)
    return matches.name === "AbortError" ? null : [[matches.message, "", close]];
  const own = matches.map(([key, balance]) => {
    const held = `${written(balance)} ${unit()}`;
    return [account(key).label, held, () => go(add(key))];
  });
  const none = `No account of ${state.asset.label} has “${text}” in its ids, type or label`;
  const all = [...others, ...own.slice(0, 30)];
  return text && !all.length ? [[none, "", () => {}]] : all;
};

const suggest = settled(async () => {
  const options = await optionsOf(field().value.trim());
  if (!isWanted || !options) return;
  const item = ([label, more, run], n) => {
    const onmousedown = (event) => {
      event.preventDefault();
      field().value = "";
      close();
      run();
    };
    const own = { role: "option", id: `found-${n}`, "aria-selected": "false", onmousedown };
    return make("li", own, make("span", {}, ...unbroken(label)), make("small", {}, more));
  };
  at("found").replaceChildren(...options.map(item));
  at("found").hidden = !options.length || document.activeElement !== field();
  field().setAttribute("aria-expanded", String(!at("found").hidden));
}, 80);

const offer = () => {
  isWanted = true;
  suggest();
};

const close = () => {
  isWanted = false;
  at("found").hidden = true;
  field().setAttribute("aria-expanded", "false");
  field().removeAttribute("aria-activedescendant");
};

const press = (event) => {
  const options = [...at("found").children];
  const old = options.findIndex((one) => one.ariaSelected === "true");
  if (event.key === "Escape") {
    event.preventDefault(); // a browser would clear the field, which would open the list again
    return close();
  }
  if (event.key === "Enter" && options.length && !at("found").hidden) {
    return options[Math.max(old, 0)].dispatchEvent(new Event("mousedown"));
  }
  const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!by || !options.length) return;
  event.preventDefault();
  const next = (old + by + options.length + (old < 0 && by < 0)) % options.length;
  options.forEach((one, n) => one.setAttribute("aria-selected", String(n === next)));
  options[next].scrollIntoView({ block: "nearest" });
  field().setAttribute("aria-activedescendant", options[next].id);
};

/** Listen to the search field; the key / moves the focus there. */
export const listenToSearch = () => {
  const type = () => {
    close();
    offer();
  };
  const lead = (event) => {
    if (event.key !== "/" || event.target.closest("input, select")) return;
    event.preventDefault();
    field().focus();
  };
  hear(field(), { input: type, focus: offer, blur: close, keydown: press });
  hear(window, { keydown: lead });
};

const FIRST = 3; // lines that the page begins with
let mark = () => {};
let lines = [];
let cells = new Map(); // each account's cells: its balance, and how that is known
let last = 0;

export const showLegend = () => {
  cells = new Map();
  const line = (key, n) => {
    const { label, ids } = account(key);
    const own = linked("", isFrozen ? undefined : () => explain(key, last)) || make("span");
    const how = make("span");
    cells.set(key, [own, how]);
    const others = state.accounts.filter((one) => one !== key);
    const remove = () => go({ account: others, none: "1" });
    const name = link(label, () => open(key), ids);
    return make(
      "tr",
      {},
      make("th", { scope: "row" }, swatch(n), name),
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

/** Return an account's balance at a moment, and how it is known; `null` if the drawn rows don't show it. */
const heldAt = ({ times, balances, rows, opening, missing, from, to }, time) => {
  if (missing) return [unknown, missing];
  if (time >= about.end) return [unknown, "after the end of the data"];
  const place = times.findLastIndex((one) => one <= time);
  const since = times[place];
  const isWhole = rows === times.length || since === time || place === times.length - 1;
  if (time < from || time >= to || !isWhole) return null;
  if (place < 0) return [unknown, times.length ? "before its first row" : "no row up to then"];
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

const seek = (time) => {
  last = time;
  const readings = lines.map((line) => [line.key, heldAt(line, time)]);
  const asking = isFrozen ? "this page has only some of its rows" : "looking it up";
  for (const [key, texts] of readings) put(key, texts ?? ["…", asking]);
  if (readings.some(([, texts]) => !texts) && !isFrozen) ask(time);
  if (lines.length) at("moment").textContent = `${when(time)} UTC, in ${unit()}`;
};

const ask = settled(async (time) => {
  const answer = await getLines([time, time + 1], 1, "moment").catch((error) => error);
  if (time !== last || answer.name === "AbortError") return;
  const isFailure = answer instanceof Error;
  for (const line of isFailure ? lines : answer) {
    put(line.key, isFailure ? ["…", answer.message] : heldAt(line, time));
  }
}, 60);

/** Return the lines of the chosen accounts; in a report, each one's line over all time. */
const getLines = async ([from, to], width, as) => {
  const keys = state.accounts;
  if (!keys.length) return [];
  if (!isFrozen) {
    const { series } = await get("series", seriesOf(keys, [from, to], width), as);
    return series.map((line) => ({ ...line, from, to }));
  }
  const none = { times: [], balances: [], rows: 0, missing: "its history is not in this report" };
  const one = async (key) => {
    const asked = get("series", seriesOf([key], [about.start, about.end], WIDEST));
    const [line] = await asked.then(({ series }) => series).catch(() => [none]);
    return { ...line, key, from: -Infinity, to: Infinity };
  };
  return Promise.all(keys.map(one));
};

export const drawLines = () => {
  const [start, end] = span();
  lines = lines.filter(({ key }) => state.accounts.includes(key));
  const ends = lines.map(({ key, balances }) => {
    const [first, final] = [0, -1].map((n) => written(balances.at(n) ?? null));
    return `${account(key).label}: ${first} at the start, ${final} at the end`;
  });
  const series = lines.map(({ key, times, balances, to }) => ({
    ink: inkOf(state.accounts.indexOf(key)),
    times,
    values: balances.map(value),
    to,
  }));
  const range = { start, end, gaps: about.gaps, until: about.end, marked: state.when };
  mark = draw(at("chart"), {
    ...range,
    series,
    empty: state.chosen && !state.accounts.length ? "No account is chosen." : "",
    label: `Balances in ${unit()}, ${between([start, end])} UTC. ${ends.join("; ")}`,
    onrange: zoom,
    onwheel: zoomBy,
    onpan: panBy,
    onhover: seek,
    onall: () => go({ range: "ALL" }),
    onpick: isFrozen ? undefined : (time) => go({ at: time }),
  });
  seek(Math.round(Math.min(last || end, end - 1, about.end - 1)));
};

/** Choose the largest holders, parties first: the network's treasury would dwarf all others. */
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

const readLines = async () => {
  if (!state.chosen) return chooseFirst();
  const width = Math.min(Math.max(at("chart").clientWidth, 100), WIDEST);
  return getLines(span().map(Math.round), width);
};

const fillChart = newest((answer) => {
  const isFailure = answer instanceof Error;
  at("failed").replaceChildren(...(isFailure ? [refusal(answer)] : []));
  at("failed").hidden = !isFailure;
  if (isFailure || !answer) return;
  lines = answer;
  drawLines();
});

/** Show the lines of the chosen accounts, or why they can't be shown. */
export const showChart = () =>
  fillChart([state.asset.id, state.chosen, state.accounts, span()], readLines);

export const keysOfChart = (event) => {
  const [start, end] = span();
  const rows = lines.flatMap(({ times }) => times).sort((a, b) => a - b);
  const run = {
    "+": () => zoomBy(0.5, last),
    "-": () => zoomBy(2, last),
    PageUp: () => panBy(-0.5),
    PageDown: () => panBy(0.5),
    0: () => go({ range: "ALL" }),
    ArrowRight: () => seek(rows.find((time) => time > last && time < end) ?? last),
    ArrowLeft: () => seek(rows.findLast((time) => time < last && time >= start) ?? last),
    Enter: isFrozen ? undefined : () => go({ at: last }),
  }[event.key];
  if (!run) return;
  run();
  event.preventDefault();
  mark(last);
};
