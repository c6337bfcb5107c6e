// Charts of steps and bars over time, in SVG; the style sheet colours them. What is not known stays empty and is hatched.
import { DAY, moment } from "./text.js";

const TALL = 320, LOW = 220, TOP = 14, RIGHT = 34, BELOW = 30;
const TIMES = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200].map((seconds) => seconds * 1e6);
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

const shape = (tag, attributes, ...content) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...content);
  return made;
};

/** Return the least of 1, 2, 5, 10 times a power of 10 that is not less than a number. */
const roundUp = (number) => {
  const power = 10 ** Math.floor(Math.log10(number));
  return [1, 2, 5, 10].find((each) => each * power >= number) * power;
};

/** Return when ticks stand, not nearer to each other than `least`, and how far apart: at whole units of the calendar. */
const calendar = (start, end, least) => {
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

const timeText = (time, step) => {
  const date = new Date(time / 1e3), month = MONTHS[date.getUTCMonth()], year = date.getUTCFullYear();
  if (step >= 360 * DAY) return String(year);
  if (step >= 28 * DAY) return `${month} ${year}`;
  return step >= DAY || time % DAY === 0 ? `${date.getUTCDate()} ${month}` : moment(time).slice(11, step < 60e6 ? undefined : 16);
};

/** Return round numbers of a range: evenly spaced, or powers of 10, of a scale with both signs 0 and those above a unit. */
const round = (min, max, log, isSigned, unit) => {
  const even = roundUp((max - min) / 7);
  if (!log) return Array.from({ length: 9 }, (_, n) => (Math.ceil(min / even) + n) * even).filter((each) => each <= max);
  const low = isSigned ? Math.round(Math.log10(unit)) : Math.floor(Math.log10(min)), high = Math.floor(Math.log10(Math.max(-min, max)));
  const step = Math.max(1, Math.ceil((high - low) / 4)), of = high - low < 3 && !isSigned ? [1, 2, 5] : [1];
  const places = Array.from({ length: 6 }, (_, n) => low + (n + (isSigned ? 1 : 0)) * step);
  const found = places.flatMap((place) => of.map((each) => each * 10 ** place));
  return (isSigned ? [...found.map((each) => -each).reverse(), 0, ...found] : found).filter((each) => each >= min && each <= max);
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
const scaleOf = (values, { log, bars, levels, style }) => {
  if (levels) return { ticks: levels.map((_, n) => n), texts: levels, part: (value) => (value + 0.5) / levels.length };
  let [low, high] = bars ? [0, 0] : [Infinity, -Infinity];
  for (const value of values) [low, high] = [Math.min(low, value), Math.max(high, value)];
  if (low > high || (bars && low === high)) return { ticks: [], texts: [], part: () => 0 };
  const unit = 10 ** Math.max(0, Math.floor(Math.log10(Math.max(-low, high))) - 5); // about 0, a scale with both signs is even
  const both = [(value) => Math.asinh(value / unit), (place) => Math.sinh(place) * unit];
  const [bend, back] = !log ? [(value) => value, (place) => place] : bars ? both : [Math.log10, (place) => 10 ** place];
  let [from, to] = [low, high].map(bend);
  const room = 0.08 * (to - from || Math.abs(to) || 1);
  if (log && !bars) [from, to] = [Math.floor(from), Math.max(Math.floor(from) + 1, Math.ceil(to))];
  else [from, to] = [from - (from >= 0 && from < room ? from : room), to + (to <= 0 && to > -room ? -to : room)];
  const ticks = round(back(from), back(to), log, bars, unit);
  return { ticks, texts: numbers(ticks, style), part: (value) => (bend(value) - from) / (to - from) };
};

/** Return steps as a path. Of all that falls into half a pixel it has the lowest, the highest and the last: more can't be seen. */
const pathOf = ({ times, values, to }, x, y) => {
  let path = "", column, held = null, low, high;
  for (let n = 0; n <= times.length; n += 1) {
    const left = Math.round(2 * x(times[n] ?? to)) / 2, level = (values[n] ?? null) === null ? null : Math.round(10 * y(values[n])) / 10;
    if (held !== null && level !== null && left === column) {
      [low, high] = [Math.min(low, level), Math.max(high, level)];
    } else {
      if (held !== null) path += `${low < high ? `V${low}V${high}V${held}` : ""}H${left}`;
      if (level !== null) path += held === null ? `M${left} ${level}` : `V${level}`;
      [low, high] = [level, level];
    }
    [column, held] = [left, level];
  }
  return path;
};

/** Return bars as a path, each over 85 % of its period. */
const barsOf = ({ times, ends, values }, x, y) => times.map((time, n) => {
  const width = Math.max(1, 0.85 * (x(ends[n]) - x(time)));
  return values[n] ? `M${x(time)} ${y(0)}V${y(values[n])}h${width}V${y(0)}Z` : "";
}).join("");

/** Return stretches of time as a path, from the top to the bottom, each wide enough to be seen. */
const bandsOf = (stretches, x, height) =>
  stretches.map(([from, to]) => `M${x(from)} 0v${height}h${Math.max(3, x(to) - x(from))}v${-height}Z`).join("");

/** Return of a series what is between two moments, with what is held at the first, and nothing that can't be drawn. */
const cut = (one, { start, end, until = end, log, bars }) => {
  const to = Math.min(one.to ?? until, until, end);
  const from = bars ? one.ends.filter((time) => time <= start).length : Math.max(one.times.findLastIndex((time) => time <= start), 0);
  const after = one.times.findIndex((time) => time >= to), part = (all) => all?.slice(from, after < 0 ? undefined : after);
  const values = part(one.values).map((value) => (log && !bars && value <= 0 ? null : value));
  return { ...one, to, values, times: part(one.times), ends: part(one.ends) };
};

const charts = new WeakMap();

/** Listen to a pointer once for all that is drawn into a box: what it is over, what it drags over, and a wheel. */
const hear = (box) => {
  let from = null;
  const on = (name, run) => box.addEventListener(name, (event) => {
    const chart = charts.get(box), place = event.clientX - box.getBoundingClientRect().left - chart.left;
    run(chart, Math.min(Math.max(place, 0), chart.width), event);
  }, { passive: false });
  const leave = (chart) => {
    from = null;
    chart.select(0, 0);
    chart.point(null);
  };
  const over = (chart, place) => {
    chart.point(chart.timeAt(place));
    chart.onhover?.(chart.timeAt(place));
    if (from !== null) chart.select(Math.min(from, place), Math.abs(place - from));
  };
  on("pointerdown", (chart, place, event) => {
    if (event.button !== 0 || !chart.onrange) return;
    from = place;
    box.setPointerCapture(event.pointerId);
    over(chart, place);
  });
  on("pointermove", over);
  on("pointerup", (chart, place) => {
    const ends = from === null || Math.abs(place - from) < 4 ? [] : [from, place].sort((one, two) => one - two).map(chart.timeAt);
    from = null;
    chart.select(0, 0);
    if (ends.length) chart.onrange(...ends);
  });
  on("pointercancel", leave);
  on("pointerleave", leave);
  on("wheel", (chart, place, event) => {
    if (!chart.onwheel) return;
    event.preventDefault();
    const { deltaX, deltaY, shiftKey } = event;
    if (shiftKey || Math.abs(deltaX) > Math.abs(deltaY)) chart.onpan(Math.sign(deltaX || deltaY) / 8);
    else chart.onwheel(deltaY > 0 ? 1.25 : 0.8, chart.timeAt(place));
  });
};

/**
 * Draw into a box, in place of what was drawn there; return what marks a moment, or none.
 * Series have an ink, which is a class, maybe an end, times in microseconds (bars: and ends) and
 * values, null where unknown; of levels, texts from the lowest up, values are places.
 */
export const draw = (box, options) => {
  const { series, start, end, gaps = [], until = end, bars, levels, label } = options, shown = series.map((one) => cut(one, options));
  const { ticks, texts, part } = scaleOf(shown.flatMap(({ values }) => values.filter((value) => value !== null)), options);
  const wide = Math.max(box.clientWidth, 200), tall = levels ? 44 + 26 * levels.length : bars || innerWidth < 600 ? LOW : TALL;
  const left = 14 + 7 * Math.max(3, ...texts.map((text) => text.length)), width = wide - left - RIGHT, height = tall - TOP - BELOW;
  const x = (time) => ((Math.min(Math.max(time, start), end) - start) / (end - start)) * width, y = (value) => height * (1 - part(value));
  const [times, step] = calendar(start, end, ((end - start) / width) * (end - start < 60e6 ? 130 : 84));
  const grid = [...ticks.map((tick) => `M-5 ${y(tick)}H${width}`), ...times.map((time) => `M${x(time)} 0V${height + 5}`)].join("");
  const missing = bandsOf(gaps.filter(([from, to]) => from < end && to > start), x, height);
  const kind = bars ? "bar" : levels ? "line thick" : "line";
  const select = shape("rect", { class: "picked", height }), cursor = shape("path", { class: "cursor" });
  const plot = shape("g", { transform: `translate(${left} ${TOP})` },
    shape("path", { class: "beyond", d: until < end ? bandsOf([[until, end]], x, height) : "" }),
    shape("path", { class: "gap", fill: "url(#hatch)", d: missing }), shape("path", { class: "grid", d: grid }),
    ...ticks.map((tick, n) => shape("text", { class: "ends", x: -9, y: y(tick) + 4 }, texts[n])),
    ...times.map((time) => shape("text", { x: x(time), y: height + 20 }, timeText(time, step))),
    ...shown.map((one) => shape("path", { class: `${kind} ${one.ink}`, d: bars ? barsOf(one, x, y) : pathOf(one, x, y) })),
    shape("rect", { class: "plot", width, height }), select, cursor);
  box.replaceChildren(shape("svg", { role: "img", "aria-label": label, width: wide, height: tall }, plot));
  if (!charts.has(box)) hear(box);
  const point = (time) => cursor.setAttribute("d", time === null ? "" : `M${x(time)} 0V${height}`);
  charts.set(box, { ...options, left, width, point, timeAt: (place) => start + (place / width) * (end - start),
    select: (from, size) => { select.setAttribute("x", from); select.setAttribute("width", size); } });
  return point;
};
