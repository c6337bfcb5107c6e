// Names of columns, accounts, parties and markets.
import { printable } from "./text.js";

const WORDS = {
  active: ["active accounts", "Accounts with a row whose balance differs from the one before."],
  average: ["average", "Time-weighted: each balance counts as long as it was held."],
  carried: ["held unchanged for"],
  changes: ["changes", "Rows whose balance differs from the one before."],
  closing: ["closing", "Balance at the end of the range."],
  complete: ["complete", "Every change is there."],
  confirmed: ["confirmed", "Every change is there, and another source has the same ones."],
  delta: ["change"],
  first_seen: ["first row in the range"],
  last_seen: ["last row in the range"],
  drawdown: ["drawdown", "Largest fall of the balance below its peak so far."],
  holders: ["holders", "Accounts that hold the asset."],
  inflow: ["inflow", "Sum of all increases of balances."],
  internal: ["between its own accounts", "In neither inflow nor outflow."],
  known: ["known accounts"],
  net: ["net", "Inflow less outflow."],
  opening: ["opening", "Balance at the start of the range."],
  outflow: ["outflow", "Sum of all decreases of balances."],
  parties: ["parties", "Parties that hold the asset. A party owns all of its accounts."],
  party_id: ["party"],
  relative: ["net in %", "Net as a share of the opening balance."],
  since: ["since", "When it last changed."],
  source: ["came from"],
  unknown: ["unknown", "Left out of sums: unknown balances, and rows after an unknown balance."],
  unknown_accounts: ["unknown accounts", "They are left out of the total."],
  unknown_parties: ["unknown parties", "Parties with an unknown balance."],
  which: ["which row"],
  zero_share: ["share of time at 0"],
};

/** Return a column's name in plain words. */
export const words = (name) => WORDS[name]?.[0] ?? name.replaceAll("_", " ");

/** Return the explanation of a column's name, if it has one. */
export const meaning = (name) => WORDS[name]?.[1];

/** Return an account type in lower case, without its prefix. */
export const kindOf = (type) =>
  printable(type.replace("ACCOUNT_TYPE_", "").replaceAll("_", " ").toLowerCase());

let labels = {};

/** Set the user's names of parties and markets. */
export const setLabels = (given) => {
  labels = given;
};

/** Return the user's name of a party or a market, or its short id. */
export const called = (id) => {
  if (Object.hasOwn(labels, id)) return printable(labels[id]);
  const letters = Array.from(id);
  const short = [...letters.slice(0, 6), "…", ...letters.slice(-4)].join("");
  return printable(letters.length > 11 ? short : id);
};

/** Return the id that the user named so, ignoring case, or else the text itself. */
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
  const place = Object.hasOwn(labels, market)
    ? called(market)
    : market && `market ${called(market)}`;
  const parts = [kindOf(type), called(party), place];
  const label = parts.filter(Boolean).join(" · ");
  const ids = printable([party, market].filter(Boolean).join(" · "));
  return { key, asset, type, party, market, label: printable(label), ids };
};

/** Return whether a text of the page has each wanted word. */
export const hasWords = (text, wanted) => {
  const words = wanted.toLowerCase().split(/\s+/);
  return words.every((word) => word === "·" || text.toLowerCase().includes(word));
};

/** Return all texts that the page shows for an account, joined. */
export const searched = (key) => {
  const { type, party, market, label, ids } = account(key);
  const names = [kindOf(type), called(party), market && called(market)];
  return [label, ids, type, party, market, ...names].join(" ");
};
