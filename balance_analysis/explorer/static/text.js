// Write values for people: amounts, moments in UTC, words. An amount is never rounded to 0.

export const unknown = "unknown";
export const DAY = 86400e6; // microseconds

const HIDDEN = /[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/gu;

/** Replace control and invisible characters with their codes. */
export const printable = (text) =>
  text.replace(HIDDEN, (letter) => {
    const code = letter.codePointAt(0).toString(16);
    return code.length > 4 ? `\\U${code.padStart(8, "0")}` : `\\u${code.padStart(4, "0")}`;
  });

const grouped = (digits) => digits.replace(/\B(?=(\d{3})+$)/g, ",");

/** Write an integer of smallest units in whole units, by moving the decimal point only. */
export const amount = (text, decimals = 0, plain = false) => {
  if (text === null) return unknown;
  const sign = text.startsWith("-") ? "-" : "";
  const digits = text.slice(sign.length).padStart(decimals + 1, "0");
  const whole = digits.slice(0, digits.length - decimals);
  const part = decimals ? digits.slice(-decimals).replace(/0+$/, "") : "";
  return sign + (plain ? whole : grouped(whole)) + (part && `.${part}`);
};

const decimalsOf = (text, decimals) => amount(text, decimals, true).split(".")[1]?.length ?? 0;

/** Return the number of decimals to show in a column: enough for four digits of the largest amount, or two. */
export const places = (texts, decimals) => {
  const held = texts.filter((text) => text !== null);
  const digits = Math.max(0, ...held.map((text) => text.replace("-", "").length));
  const most = Math.min(decimals, Math.max(2, decimals - digits + 4));
  return Math.min(most, Math.max(0, ...held.map((text) => decimalsOf(text, decimals))));
};

/** Write an amount rounded to `to` decimals; a smaller amount becomes "<0.01", not 0. */
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

/** Write microseconds since 1970 in ISO 8601, for files. */
export const instant = (micros) => {
  const seconds = Math.floor(micros / 1e6);
  const rest = String(micros - seconds * 1e6).padStart(6, "0");
  return new Date(seconds * 1e3).toISOString().replace(/\d+Z$/, `${rest}Z`);
};

/** Write microseconds since 1970 as a moment with all of its digits. */
export const moment = (micros) => {
  if (micros === null) return "–";
  return instant(micros)
    .replace("T", " ")
    .replace(/\.?0*Z$/, "");
};

/** Return a function that writes a column's moments as days or to the second; with `areDistinct`, they stay distinct. */
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

/** Write a number and its noun. */
export const many = (number, one, more = `${one}s`) =>
  `${count(number)} ${number === 1 ? one : more}`;

const SHOWN = {
  moment,
  ratio,
  count,
  flag: (value) => (value ? "yes" : "no"),
  text: (value) => printable(value ?? ""),
};

/** Write a value according to its kind. */
export const shown = (value, kind, decimals) =>
  kind === "amount" ? amount(value, decimals) : SHOWN[kind](value);
