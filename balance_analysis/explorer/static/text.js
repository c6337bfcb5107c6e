// Values as people read them: amounts with every digit, moments in UTC. Nothing is rounded here.

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

/** Write microseconds since 1970 as a moment, with every digit that it has. */
export const moment = (micros) => {
  if (micros === null) return "–";
  const seconds = Math.floor(micros / 1e6);
  const rest = String(micros - seconds * 1e6).padStart(6, "0").replace(/0+$/, "");
  return new Date(seconds * 1e3).toISOString().slice(0, 19).replace("T", " ") + (rest && `.${rest}`);
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

export const ratio = (part) => (part === null ? unknown : part > 0 && part < 1e-6 ? "<0.0001 %"
  : part < 1 && part > 1 - 1e-6 ? ">99.9999 %" : `${(100 * part).toFixed(4)} %`);

export const count = (number) => (number === null ? unknown : grouped(String(number)));

const WORDS = { average: "time-weighted average", gini: "Gini coefficient", herfindahl: "Herfindahl index", largest: "share of the 10 largest",
  total: "total held", unknown: "not known", zero_share: "share of time at 0" };

/** Say what a column is. */
export const words = (name) => WORDS[name] ?? name.replaceAll("_", " ");

/** Say what a type of account is, without what all types have. */
export const kindOf = (type) => type.replace("ACCOUNT_TYPE_", "").replaceAll("_", " ").toLowerCase();

const short = (id) => (id.length > 11 ? `${id.slice(0, 6)}…${id.slice(-4)}` : id);

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
  const label = [kindOf(type), short(party), market && `market ${short(market)}`].filter(Boolean).join(" · ");
  const ids = [party, market].filter(Boolean).join(" · ");
  return { key, asset, type, party, market, label, ids, text: `${kindOf(type)} ${type} ${ids}`.toLowerCase() };
};
