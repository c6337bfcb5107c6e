// Values as people read them: amounts, moments in UTC, and words. What is rounded says so by its name, and is never 0 unless it is.

export const unknown = "unknown", DAY = 86400e6; // microseconds

const grouped = (digits) => digits.replace(/\B(?=(\d{3})+$)/g, ",");

/** Write a whole number of smallest units with so many decimals: by moving the point alone. */
export const amount = (text, decimals = 0, plain = false) => {
  if (text === null) return unknown;
  const negative = text.startsWith("-");
  const digits = (negative ? text.slice(1) : text).padStart(decimals + 1, "0");
  const whole = digits.slice(0, digits.length - decimals);
  const part = decimals ? digits.slice(-decimals).replace(/0+$/, "") : "";
  return (negative ? "-" : "") + (plain ? whole : grouped(whole)) + (part && `.${part}`);
};

const decimalsOf = (text, decimals) => amount(text, decimals, true).split(".")[1]?.length ?? 0;

/** Return how many decimals matter in amounts that stand together: those of the largest to its fourth digit, or two, as far as there are any. */
export const places = (texts, decimals) => {
  const held = texts.filter((text) => text !== null), digits = held.reduce((most, text) => Math.max(most, text.replace("-", "").length), 0);
  const most = Math.min(decimals, Math.max(2, decimals - digits + 4));
  return held.some((text) => decimalsOf(text, decimals) > most) ? most : held.reduce((some, text) => Math.max(some, decimalsOf(text, decimals)), 0);
};

/** Write an amount to so many places behind the point; what is less than the last of them is "<0.01", not 0. */
export const rounded = (text, decimals, to) => {
  if (text === null) return unknown;
  const held = BigInt(text), size = held < 0n ? -held : held, grain = 10n ** BigInt(decimals - to), near = (size + grain / 2n) / grain;
  const digits = String(near || (size && 1n)).padStart(to + 1, "0"), point = digits.length - to;
  return `${size && !near ? "<" : ""}${held < 0n ? "-" : ""}${grouped(digits.slice(0, point))}${to ? `.${digits.slice(point)}` : ""}`;
};

/** Write microseconds since 1970 as a moment, with every digit that it has. */
export const moment = (micros) => {
  if (micros === null) return "–";
  const seconds = Math.floor(micros / 1e6);
  const rest = String(micros - seconds * 1e6).padStart(6, "0").replace(/0+$/, "");
  return new Date(seconds * 1e3).toISOString().slice(0, 19).replace("T", " ") + (rest && `.${rest}`);
};

/** Return what writes moments that stand together: as days where all are, or to the second, unless that doesn't tell apart what it has to. */
export const briefly = (times, areApart) => {
  const known = [...new Set(times.filter((time) => time !== null))], length = known.every((time) => time % DAY === 0) ? 10 : 19;
  return areApart && length === 19 && new Set(known.map((time) => Math.floor(time / 1e6))).size < known.length ? moment : (time) => moment(time).slice(0, length);
};

/** Write microseconds since 1970 as ISO 8601, for a file. */
export const instant = (micros) => {
  const seconds = Math.floor(micros / 1e6);
  return `${new Date(seconds * 1e3).toISOString().slice(0, 19)}.${String(micros - seconds * 1e6).padStart(6, "0")}Z`;
};

/** Read a moment that a person gave, in UTC, as it is written here or a date alone; NaN where it is none. */
export const micros = (text) => {
  const [, day, time = "00:00", rest = ""] = /^(\d{4}-\d\d-\d\d)(?:[ T](\d\d:\d\d(?::\d\d)?)(\.\d{1,6})?)?(?: ?(?:Z|UTC))?$/.exec(text.trim()) ?? [];
  const found = Date.parse(`${day}T${time}Z`);
  return !Number.isNaN(found) && new Date(found).toISOString().startsWith(day) ? found * 1e3 + Math.round(`0${rest}` * 1e6) : NaN; // 30 February is none
};

export const ratio = (part) => (part === null ? unknown : part > 0 && part < 5e-5 ? "<0.01\u00a0%" : part < 0 && part > -5e-5 ? ">-0.01\u00a0%"
  : part < 1 && part > 1 - 5e-5 ? ">99.99\u00a0%" : `${(100 * part).toFixed(2).replace(/\d+/, grouped)}\u00a0%`);

export const count = (number) => (number === null ? unknown : grouped(String(number)));

const WORDS = {
  active: ["active accounts", "Accounts that have a row whose balance differs from the one before."], asked_at: ["asked"], at: ["at"], average: ["average over time", "Time-weighted average: each balance counts as long as it was held."],
  balance: ["held"], block_height: ["block"], carried: ["held unchanged for"], changes: ["changes", "Rows whose balance differs from the one before."], closing: ["held at the end"], complete: ["complete", "Every change is there."], confirmed: ["confirmed", "Every change is there, and another source has the same ones."],
  delta: ["change"], depth: ["below its highest so far", "Drawdown: how far it was below the highest balance until then, which may be before the range."],
  drawdown: ["furthest fall", "Drawdown: the furthest that the balance fell below its highest until then."],
  inflow: ["came in", "Inflow: what balances rose by."], holders: ["accounts that hold it"], known: ["accounts known"], maximum: ["highest"], minimum: ["lowest"], market_id: ["market"],
  net: ["change", "Net: what came in less what went out."], opening: ["held at the start"], outflow: ["went out", "Outflow: what balances fell by."],
  parties: ["parties that hold it", "A party owns all of its accounts. Pools and fees belong to the party network."], party_id: ["party"], relative: ["change in %", "The change as a part of what was held at the start."], rows: ["rows"], since: ["since", "When it last changed."], source: ["came from"], state: ["what is known of that time"],
  accounts: ["accounts"], internal: ["between its own accounts", "Internal: what its accounts gave each other in one block; it is in neither what came in nor what went out."],
  total: ["total held"], unknown: ["not known", "Accounts or rows of which it is not known; they are missing in the sums."],
  which: ["which row"], zero_share: ["share of time at 0"], account_type: ["account type"],
};

/** Say what a column is, in plain words. */
export const words = (name) => WORDS[name]?.[0] ?? name.replaceAll("_", " ");

/** Say what the field calls it and what it means, of words that don't say it all. */
export const meaning = (name) => WORDS[name]?.[1];

/** Say what a type of account is, without what all types have. */
export const kindOf = (type) => type.replace("ACCOUNT_TYPE_", "").replaceAll("_", " ").toLowerCase();

let labels = {};

/** Take own names of parties, markets and accounts from here on. */
export const label = (given) => { labels = given; };

/** Say what a party or a market is called, or its id, shortened. */
export const called = (id) => (Object.hasOwn(labels, id) ? labels[id] : id.length > 11 ? `${id.slice(0, 6)}…${id.slice(-4)}` : id);

/** Return the id, or the key, that has an own name, whatever its case; or the text itself. */
export const idOf = (text) => Object.keys(labels).find((id) => labels[id].toLowerCase() === text?.toLowerCase()) ?? text;

/** Say whether a text is an account's key. */
export const isKey = (text) => {
  try {
    return text.split("|").map(decodeURIComponent).length === 4;
  } catch {
    return false; // what stands behind a % is no text
  }
};

/** Take an account's key apart. */
export const account = (key) => {
  const [asset, type, party, market] = key.split("|").map(decodeURIComponent);
  const label = Object.hasOwn(labels, key) ? labels[key] : [kindOf(type), called(party), market && `market ${called(market)}`].filter(Boolean).join(" · ");
  const ids = [party, market].filter(Boolean).join(" · ");
  return { key, asset, type, party, market, label, ids, text: `${kindOf(type)} ${type} ${ids} ${label} ${called(party)} ${called(market)}`.toLowerCase() };
};
