// Values as people read them: amounts, moments in UTC, and words. Nothing is written as 0 unless it is 0.

export const unknown = "unknown";
export const DAY = 86400e6; // microseconds

const HIDDEN = /[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/gu;

/** Write each character that a screen obeys or hides as its code. */
export const printable = (text) =>
  text.replace(HIDDEN, (letter) => {
    const code = letter.codePointAt(0).toString(16);
    return code.length > 4 ? `\\U${code.padStart(8, "0")}` : `\\u${code.padStart(4, "0")}`;
  });

const grouped = (digits) => digits.replace(/\B(?=(\d{3})+$)/g, ",");

/** Write a whole number of smallest units in whole units, by moving the point alone. */
export const amount = (text, decimals = 0, plain = false) => {
  if (text === null) return unknown;
  const sign = text.startsWith("-") ? "-" : "";
  const digits = text.slice(sign.length).padStart(decimals + 1, "0");
  const whole = digits.slice(0, digits.length - decimals);
  const part = decimals ? digits.slice(-decimals).replace(/0+$/, "") : "";
  return sign + (plain ? whole : grouped(whole)) + (part && `.${part}`);
};

const decimalsOf = (text, decimals) => amount(text, decimals, true).split(".")[1]?.length ?? 0;

/** Return how many decimals to show of amounts in one column: those of the largest to its fourth digit, or two. */
export const places = (texts, decimals) => {
  const held = texts.filter((text) => text !== null);
  const digits = Math.max(0, ...held.map((text) => text.replace("-", "").length));
  const most = Math.min(decimals, Math.max(2, decimals - digits + 4));
  return Math.min(most, Math.max(0, ...held.map((text) => decimalsOf(text, decimals))));
};

/** Write an amount with some decimals; what is less than the last of them is "<0.01", not 0. */
export const rounded = (text, decimals, to) => {
  if (text === null) return unknown;
  const held = BigInt(text);
  const size = held < 0n ? -held : held;
  const grain = 10n ** BigInt(decimals - to);
  const near = (size + grain / 2n) / grain;
  const sign = `${size && !near ? "<" : ""}${held < 0n ? "-" : ""}`;
  const digits = String(near || (size && 1n)).padStart(to + 1, "0");
  const point = digits.length - to;
  return `${sign}${grouped(digits.slice(0, point))}${to ? `.${digits.slice(point)}` : ""}`;
};

const iso = (seconds) => new Date(seconds * 1e3).toISOString().slice(0, 19);

/** Write microseconds since 1970 as a moment, with every digit that it has. */
export const moment = (micros) => {
  if (micros === null) return "–";
  const seconds = Math.floor(micros / 1e6);
  const rest = String(micros - seconds * 1e6)
    .padStart(6, "0")
    .replace(/0+$/, "");
  return iso(seconds).replace("T", " ") + (rest && `.${rest}`);
};

/** Write microseconds since 1970 as ISO 8601, for a file. */
export const instant = (micros) => {
  const seconds = Math.floor(micros / 1e6);
  return `${iso(seconds)}.${String(micros - seconds * 1e6).padStart(6, "0")}Z`;
};

/** Return what writes the moments of a column: as days or to the second; `areDistinct` keeps them distinct. */
export const briefly = (times, areDistinct) => {
  const known = [...new Set(times.filter((time) => time !== null))];
  const length = known.every((time) => time % DAY === 0) ? 10 : 19;
  const seconds = new Set(known.map((time) => Math.floor(time / 1e6)));
  if (areDistinct && length === 19 && seconds.size < known.length) return moment;
  return (time) => moment(time).slice(0, length);
};

export const ratio = (part) => {
  if (part === null) return unknown;
  if (part > 0 && part < 5e-5) return "<0.01\u00a0%";
  if (part < 0 && part > -5e-5) return ">-0.01\u00a0%";
  if (part < 1 && part > 1 - 5e-5) return ">99.99\u00a0%";
  return `${(100 * part).toFixed(2).replace(/\d+/, grouped)}\u00a0%`;
};

export const count = (number) => (number === null ? unknown : grouped(String(number)));

/** Write a number of things. */
export const many = (number, one, more = `${one}s`) =>
  `${count(number)} ${number === 1 ? one : more}`;

const WORDS = {
  active: ["active accounts", "Accounts with a row whose balance differs from the one before."],
  average: ["average over time", "Time-weighted: each balance counts as long as it was held."],
  balance: ["held"],
  carried: ["held unchanged for"],
  changes: ["changes", "Rows whose balance differs from the one before."],
  closing: ["held at the end"],
  complete: ["complete", "Every change is there."],
  confirmed: ["confirmed", "Every change is there, and another source has the same ones."],
  delta: ["change"],
  first_seen: ["first row in the range"],
  last_seen: ["last row in the range"],
  drawdown: ["furthest fall", "Furthest that the balance fell below its highest until then."],
  holders: ["accounts that hold it"],
  inflow: ["came in", "Inflow: what balances rose by."],
  internal: ["between its own accounts", "In neither what came in nor what went out."],
  known: ["accounts known"],
  maximum: ["highest"],
  minimum: ["lowest"],
  net: ["change", "Net: what came in less what went out."],
  opening: ["held at the start"],
  outflow: ["went out", "Outflow: what balances fell by."],
  parties: ["parties that hold it", "A party owns all of its accounts."],
  party_id: ["party"],
  relative: ["change in %", "The change as a part of what was held at the start."],
  since: ["since", "When it last changed."],
  source: ["came from"],
  total: ["total held"],
  unknown: ["not known", "Accounts or first balances that are missing in the sums."],
  unknown_accounts: ["accounts not known", "They are missing in the total."],
  unknown_parties: ["parties not known", "Parties with a balance that is not known."],
  which: ["which row"],
  zero_share: ["share of time at 0"],
};

/** Return a column's name in plain words. */
export const words = (name) => WORDS[name]?.[0] ?? name.replaceAll("_", " ");

/** Return the meaning of a word that needs one. */
export const meaning = (name) => WORDS[name]?.[1];

/** Return a type of account without what all types have. */
export const kindOf = (type) =>
  printable(type.replace("ACCOUNT_TYPE_", "").replaceAll("_", " ").toLowerCase());

let labels = {};

/** Use own names of parties, markets and accounts from here on. */
export const label = (given) => {
  labels = given;
};

/** Return the own name of a party or a market, or its short id. */
export const called = (id) => {
  if (Object.hasOwn(labels, id)) return printable(labels[id]);
  const letters = Array.from(id);
  const short = [...letters.slice(0, 6), "…", ...letters.slice(-4)].join("");
  return printable(letters.length > 11 ? short : id);
};

/** Return the id or the key with an own name, in any case; or the text itself. */
export const idOf = (text) =>
  Object.keys(labels).find((id) => labels[id].toLowerCase() === text?.toLowerCase()) ?? text;

/** Return whether a text is an account's key. */
export const isKey = (text) => {
  try {
    return text.split("|").map(decodeURIComponent).length === 4;
  } catch {
    return false; // a % without two digits
  }
};

/** Return the ids of an account's key, and the account's label. */
export const account = (key) => {
  const [asset, type, party, market] = key.split("|").map(decodeURIComponent);
  const parts = [kindOf(type), called(party), market && `market ${called(market)}`];
  const label = Object.hasOwn(labels, key) ? labels[key] : parts.filter(Boolean).join(" · ");
  const ids = printable([party, market].filter(Boolean).join(" · "));
  return { key, asset, type, party, market, label: printable(label), ids };
};

/** Return whether a text of a page has each word that is searched for. */
export const hasWords = (text, wanted) => {
  const words = wanted.toLowerCase().split(/\s+/);
  return words.every((word) => word === "·" || text.toLowerCase().includes(word));
};

/** Return everything that a page shows of an account. */
export const searched = (key) => {
  const { type, party, market, label, ids } = account(key);
  return [
    label,
    ids,
    type,
    kindOf(type),
    called(party),
    market && called(market),
    party,
    market,
  ].join(" ");
};
