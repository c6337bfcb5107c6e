// The axes of a chart: round numbers, whole units of the calendar, and where a value stands.
import { DAY, moment } from "./text.js";

const TIMES = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200];
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/** Return the least of 1, 2, 5, 10 times a power of 10 that is not less than a number. */
const roundUp = (number) => {
  const power = 10 ** Math.floor(Math.log10(number));
  return [1, 2, 5, 10].find((each) => each * power >= number) * power;
};

/** Return times of ticks at whole units of the calendar, not nearer than `least`, and how far apart. */
export const calendar = (start, end, least) => {
  const found = [];
  const second = TIMES.find((each) => each * 1e6 >= least);
  const step = least < 1e6 ? Math.max(1, roundUp(least)) : second && second * 1e6;
  if (step) {
    for (let time = Math.ceil(start / step) * step; time <= end; time += step) found.push(time);
    return [found, step];
  }
  const days = [1, 2, 3, 7, 14].find((each) => each * DAY >= least);
  const months = [1, 3, 6, 12, 24, 60, 120, 240, 600, 1200].find((one) => one * 30 * DAY >= least);
  const date = new Date(start / 1e3);
  date.setUTCHours(0, 0, 0, 0);
  if (!days) date.setUTCDate(1);
  while (date * 1e3 <= end) {
    const month = date.getUTCFullYear() * 12 + date.getUTCMonth();
    const isTick = (days ? date.getUTCDate() - 1 : month) % (days ?? months) === 0;
    if (isTick && date * 1e3 >= start) found.push(date * 1e3);
    if (days) date.setUTCDate(date.getUTCDate() + 1);
    else date.setUTCMonth(date.getUTCMonth() + 1);
  }
  const apart = days ? days * DAY : months * 30 * DAY;
  // The last days of a month may be too near to the next one's first.
  return [found.filter((time, n) => !(found[n + 1] - time < 0.8 * apart)), apart];
};

export const timeText = (time, step) => {
  const date = new Date(time / 1e3);
  const month = MONTHS[date.getUTCMonth()];
  if (step >= 360 * DAY) return String(date.getUTCFullYear());
  if (step >= 28 * DAY) return `${month} ${date.getUTCFullYear()}`;
  if (step >= DAY || time % DAY === 0) return `${date.getUTCDate()} ${month}`;
  return moment(time).slice(11, step < 60e6 ? undefined : 16);
};

/** Write ticks with as many digits as they differ by. */
const numbers = (ticks) => {
  const most = Math.max(...ticks.map(Math.abs));
  const digits = Math.ceil(Math.log10(most / (ticks[1] - ticks[0]))) + 1 || 0;
  const maximumSignificantDigits = Math.min(Math.max(3, digits), 15);
  const [short, long] = ["compact", "scientific"].map(
    (notation) => new Intl.NumberFormat("en", { notation, maximumSignificantDigits }),
  );
  const isLong = (tick) => most >= 1e15 || Math.abs(tick) < 1e-6;
  return ticks.map((tick) => (tick === 0 ? "0" : (isLong(tick) ? long : short).format(tick)));
};

/** Return the ticks of values, their texts, and where a value stands, from 0 to 1. */
export const scaleOf = (values, { bars, levels }) => {
  if (levels) {
    const part = (value) => (value + 0.5) / levels.length;
    return { ticks: levels.map((_, n) => n), texts: levels, part };
  }
  let [low, high] = bars ? [0, 0] : [Infinity, -Infinity];
  for (const value of values) [low, high] = [Math.min(low, value), Math.max(high, value)];
  if (low > high || (bars && low === high)) return { ticks: [], texts: [], part: () => 0 };
  const most = Math.max(Math.abs(low), Math.abs(high));
  const length = high - low > 1e-13 * most ? high - low : 0; // less is what floats lose
  const room = 0.08 * (length || most || 1);
  let [from, to] = [low - room, high + room];
  if (length && low >= 0 && low < room) from = 0;
  if (length && high <= 0 && high > -room) to = 0;
  const step = roundUp((to - from) / 7);
  const first = Math.ceil(from / step);
  const ticks = Array.from({ length: 9 }, (_, n) => (first + n) * step).filter(
    (each) => each <= to,
  );
  return { ticks, texts: numbers(ticks), part: (value) => (value - from) / (to - from) };
};
