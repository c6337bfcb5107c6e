// What stands along the axes of a chart: round numbers and whole units of the calendar, and where a value stands.
import { DAY, moment } from "./text.js";

const TIMES = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200].map((seconds) => seconds * 1e6);
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/** Return the least of 1, 2, 5, 10 times a power of 10 that is not less than a number. */
const roundUp = (number) => {
  const power = 10 ** Math.floor(Math.log10(number));
  return [1, 2, 5, 10].find((each) => each * power >= number) * power;
};

/** Return when ticks stand, not nearer to each other than `least`, and how far apart: at whole units of the calendar. */
export const calendar = (start, end, least) => {
  const step = least < 1e6 ? Math.max(1, roundUp(least)) : TIMES.find((each) => each >= least), found = [];
  if (step) {
    for (let time = Math.ceil(start / step) * step; time <= end; time += step) found.push(time);
    return [found, step];
  }
  const days = [1, 2, 3, 7, 14].find((each) => each * DAY >= least);
  const months = [1, 3, 6, 12, 24, 60, 120, 240, 600, 1200].find((each) => each * 30 * DAY >= least);
  const date = new Date(start / 1e3);
  date.setUTCHours(0, 0, 0, 0);
  if (!days) date.setUTCDate(1);
  for (; date * 1e3 <= end; days ? date.setUTCDate(date.getUTCDate() + 1) : date.setUTCMonth(date.getUTCMonth() + 1)) {
    const place = days ? date.getUTCDate() - 1 : date.getUTCFullYear() * 12 + date.getUTCMonth();
    if (place % (days ?? months) === 0 && date * 1e3 >= start) found.push(date * 1e3);
  }
  const apart = days ? days * DAY : months * 30 * DAY; // the last days of a month may stand too near to the next one's first
  return [found.filter((time, n) => !(found[n + 1] - time < 0.8 * apart)), apart];
};

export const timeText = (time, step) => {
  const date = new Date(time / 1e3), month = MONTHS[date.getUTCMonth()], year = date.getUTCFullYear();
  if (step >= 360 * DAY) return String(year);
  if (step >= 28 * DAY) return `${month} ${year}`;
  return step >= DAY || time % DAY === 0 ? `${date.getUTCDate()} ${month}` : moment(time).slice(11, step < 60e6 ? undefined : 16);
};

/** Return round numbers of a range: evenly spaced, or of a long range on a log scale 1, 2 and 5 times powers of 10, or these alone. */
const round = (min, max, log) => {
  const even = roundUp((max - min) / 7), [low, high] = [min, max].map(Math.log10), step = Math.max(1, Math.ceil((high - low) / 5));
  if (!log || high - low < 1) return Array.from({ length: 9 }, (_, n) => (Math.ceil(min / even) + n) * even).filter((each) => each <= max);
  const places = Array.from({ length: 7 }, (_, n) => Math.floor(low) + n * step), of = high - low < 3 ? [1, 2, 5] : [1];
  return places.flatMap((place) => of.map((each) => each * 10 ** place)).filter((each) => each >= min && each <= max);
};

/** Write ticks with as many digits as tell them apart. */
const numbers = (ticks, style) => {
  const most = Math.max(...ticks.map(Math.abs)), digits = Math.ceil(Math.log10(most / (ticks[1] - ticks[0]))) + 1 || 0;
  const [short, long] = ["compact", "scientific"].map((notation) =>
    new Intl.NumberFormat("en", { style, notation, maximumSignificantDigits: Math.min(Math.max(3, digits), 15) }));
  const isLong = (tick) => most >= 1e15 || Math.abs(tick) < 1e-6;
  return ticks.map((tick) => (tick === 0 ? "0" : (isLong(tick) ? long : short).format(tick)));
};

/** Return the ticks of values, how these are written, and where a value stands, from 0 to 1. */
export const scaleOf = (values, { log, bars, levels, style }) => {
  if (levels) return { ticks: levels.map((_, n) => n), texts: levels, part: (value) => (value + 0.5) / levels.length };
  let [low, high] = bars ? [0, 0] : [Infinity, -Infinity];
  for (const value of values) [low, high] = [Math.min(low, value), Math.max(high, value)];
  if (low > high || (bars && low === high)) return { ticks: [], texts: [], part: () => 0 };
  const [bend, back] = log ? [Math.log10, (place) => 10 ** place] : [(value) => value, (place) => place];
  let [from, to] = [low, high].map(bend);
  const length = to - from > 1e-13 * Math.max(Math.abs(from), Math.abs(to)) ? to - from : 0; // less is what floats lose
  const room = 0.08 * (length || (log ? 1 : Math.abs(to) || 1));
  if (log || !length) [from, to] = [from - room, to + room];
  else [from, to] = [from - (from >= 0 && from < room ? from : room), to + (to <= 0 && to > -room ? -to : room)];
  const ticks = round(back(from), back(to), log);
  return { ticks, texts: numbers(ticks, style), part: (value) => (bend(value) - from) / (to - from) };
};
