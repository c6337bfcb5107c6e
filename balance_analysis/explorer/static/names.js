// Names: of columns in plain words, and of accounts, parties and markets.
import { printable } from "./text.js";

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
  const names = [kindOf(type), called(party), market && called(market)];
  return [label, ids, type, party, market, ...names].join(" ");
};
