// Charts of steps and bars over time, in SVG, coloured by the style sheet. Unknown stretches are empty and hatched.
import { DAY, moment } from "./text.js";

const MONTH = 30 * DAY;
const STEPS = [
  ...[1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800].map((seconds) => seconds * 1e6),
  ...[1, 2, 3, 6, 12].map((hours) => hours * 3600e6),
  ...[1, 2, 3, 7, 14].map((days) => days * DAY),
  ...[1, 3, 6, 12, 24, 60, 120, 240, 600, 1200].map((months) => months * MONTH),
];

/** Round a number up to 1, 2, 5 or 10 times a power of 10. */
const roundUp = (number) => {
  const power = 10 ** Math.floor(Math.log10(number));
  return [1, 2, 5, 10].find((each) => each * power >= number) * power;
};

/** Return the times of ticks at whole calendar units, at least `least` apart, and their distance. */
const calendar = (start, end, least) => {
  const step = least < 1e6 ? Math.max(1, roundUp(least)) : STEPS.find((each) => each >= least);
  const isTick = (time) => {
    const date = new Date(time / 1e3);
    const [day, month] = [date.getUTCDate() - 1, date.getUTCFullYear() * 12 + date.getUTCMonth()];
    if (step < MONTH) return step < DAY || day % (step / DAY) === 0;
    return day === 0 && month % (step / MONTH) === 0;
  };
  const ticks = [];
  const grain = Math.min(step, DAY);
  for (let time = Math.ceil(start / grain) * grain; time <= end; time += grain) {
    if (isTick(time)) ticks.push(time);
  }
  // A month's last tick may be too near to the next month's first.
  return [ticks.filter((time, n) => !(ticks[n + 1] - time < 0.8 * step)), step];
};

const timeText = (time, step) => {
  const date = new Date(time / 1e3);
  const month = date.toLocaleString("en", { month: "short", timeZone: "UTC" });
  if (step >= 12 * MONTH) return String(date.getUTCFullYear());
  if (step >= MONTH) return `${month} ${date.getUTCFullYear()}`;
  if (step >= DAY || time % DAY === 0) return `${date.getUTCDate()} ${month}`;
  return moment(time).slice(11, step < 60e6 ? undefined : 16);
};

/** Write ticks with enough digits to tell them apart. */
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

/** Return ticks for values, their texts, and a function from a value to its place between 0 and 1. */
const scaleOf = (values, { bars, levels }) => {
  if (levels) {
    const part = (value) => (value + 0.5) / levels.length;
    return { ticks: levels.map((_, n) => n), texts: levels, part };
  }
  let [low, high] = bars ? [0, 0] : [Infinity, -Infinity];
  for (const value of values) [low, high] = [Math.min(low, value), Math.max(high, value)];
  if (low > high || (bars && low === high)) return { ticks: [], texts: [], part: () => 0 };
  const most = Math.max(Math.abs(low), Math.abs(high));
  const length = high - low > 1e-13 * most ? high - low : 0; // a smaller difference is a rounding error
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

const [TALL, LOW, TOP, RIGHT, BELOW] = [320, 220, 18, 34, 30];
const pen = document.createElement("canvas").getContext("2d");

const shape = (tag, attributes, ...content) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...content);
  return made;
};

/** Return steps as a path. Within half a pixel, only the lowest, the highest and the last step are drawn: more can't be seen. */
const pathOf = ({ times, values, to }, x, y) => {
  let path = "";
  let held = null;
  let column, low, high;
  for (let n = 0; n <= times.length; n += 1) {
    const left = Math.round(2 * x(times[n] ?? to)) / 2;
    const isKnown = (values[n] ?? null) !== null;
    const level = isKnown ? Math.round(10 * y(values[n])) / 10 : null;
    if (held !== null && isKnown && left === column) {
      [low, high] = [Math.min(low, level), Math.max(high, level)];
    } else {
      if (held !== null) path += `${low < high ? `V${low}V${high}V${held}` : ""}H${left}`;
      if (isKnown) path += held === null ? `M${left} ${level}` : `V${level}`;
      [low, high] = [level, level];
    }
    [column, held] = [left, level];
  }
  return path;
};

/** Return bars as a path, each over 85 % of its period. */
const barsOf = ({ times, ends, values }, x, y) =>
  times
    .map((time, n) => {
      const width = Math.max(1, 0.85 * (x(ends[n]) - x(time)));
      return values[n] ? `M${x(time)} ${y(0)}V${y(values[n])}h${width}V${y(0)}Z` : "";
    })
    .join("");

/** Return stretches of time as a path over the whole height, each wide enough to see. */
const bandsOf = (stretches, x, height) =>
  stretches
    .map(([from, to]) => `M${x(from)} 0v${height}h${Math.max(3, x(to) - x(from))}v${-height}Z`)
    .join("");

/** Return the part of a series between two moments, with the value at the first. */
const cut = (one, { start, end, until = end, bars }) => {
  const to = Math.min(one.to ?? until, until, end);
  const before = bars
    ? one.ends.filter((time) => time <= start).length
    : one.times.findLastIndex((time) => time <= start);
  const after = one.times.findIndex((time) => time >= to);
  const part = (all) => all?.slice(Math.max(before, 0), after < 0 ? undefined : after);
  return { ...one, to, values: part(one.values), times: part(one.times), ends: part(one.ends) };
};

const charts = new WeakMap();

/** Listen to the pointer over a box, once for all its drawings: hover, drag, click and wheel. */
const listenTo = (box) => {
  let from = null;
  let clicked;
  const on = (name, run) => {
    const heard = (event) => {
      const chart = charts.get(box);
      const place = event.clientX - box.getBoundingClientRect().left - chart.left;
      run(chart, Math.min(Math.max(place, 0), chart.width), event);
    };
    box.addEventListener(name, heard, { passive: false });
  };
  const leave = (chart, _, event) => {
    from = null;
    chart.select(0, 0);
    if (event.pointerType !== "touch") chart.point(null); // a finger leaves before the user has read
  };
  const over = (chart, place) => {
    chart.onhover?.(chart.momentAt(place));
    chart.point(chart.momentAt(place));
    if (from !== null) chart.select(Math.min(from, place), Math.abs(place - from));
  };
  on("pointerdown", (chart, place, event) => {
    if (event.button !== 0 || !chart.onrange) return;
    over(chart, place);
    from = place;
    box.setPointerCapture(event.pointerId);
  });
  on("pointermove", over);
  on("pointerup", (chart, place) => {
    if (from === null) return;
    const ends = [from, place].sort((one, two) => one - two);
    from = null;
    chart.select(0, 0);
    clearTimeout(clicked);
    if (ends[1] - ends[0] >= 4) chart.onrange(...ends.map(chart.timeAt));
    else clicked = setTimeout(() => chart.onpick?.(chart.momentAt(place)), 250); // or a double click
  });
  on("dblclick", (chart) => {
    clearTimeout(clicked);
    chart.onall?.();
  });
  on("pointercancel", leave);
  on("pointerleave", leave);
  on("wheel", (chart, place, event) => {
    if (!chart.onwheel) return;
    event.preventDefault();
    const { deltaX, deltaY, shiftKey } = event;
    const isSideways = shiftKey || Math.abs(deltaX) > Math.abs(deltaY);
    if (isSideways) chart.onpan(Math.sign(deltaX || deltaY) / 8);
    else chart.onwheel(deltaY > 0 ? 1.25 : 0.8, chart.timeAt(place));
  });
};

/**
 * Draw into a box, replacing its drawing; return a function that points at a moment, or at null.
 * Series have an ink (a CSS class), times in microseconds (bars also ends), values (null if
 * unknown) and maybe an end. With `levels`, texts from the lowest up, values are places in them.
 */
export const draw = (box, options) => {
  const { series, start, end, gaps = [], until = end, bars, levels } = options;
  const { label, marked, empty } = options;
  const shown = series.map((one) => cut(one, options));
  const known = shown.flatMap(({ values }) => values.filter((value) => value !== null));
  const { ticks, texts, part } = scaleOf(known, options);
  const wide = Math.max(box.clientWidth, 200);
  const isLow = bars || innerWidth < 600;
  const tall = levels ? 44 + 26 * levels.length : isLow ? LOW : TALL;
  pen.font = `12px ${getComputedStyle(box).fontFamily}`;
  const widthOf = (text) => pen.measureText(text).width;
  const left = 14 + Math.max(21, ...texts.map(widthOf));
  const [width, height] = [wide - left - RIGHT, tall - TOP - BELOW];
  const within = (time) => Math.min(Math.max(time, start), end);
  const x = (time) => ((within(time) - start) / (end - start)) * width;
  const y = (value) => height * (1 - part(value));
  const least = ((end - start) / width) * (end - start < 60e6 ? 130 : 84);
  const [times, step] = calendar(start, end, least);
  const grid = [
    ...ticks.map((tick) => `M-5 ${y(tick)}H${width}`),
    ...times.map((time) => `M${x(time)} 0V${height + 5}`),
  ].join("");
  const hit = gaps.filter(([from, to]) => from < end && to > start);
  const kind = bars ? "bar" : levels ? "line thick" : "line";
  const mark = () => {
    const line = shape("path", { d: `M${x(marked)} -4V${height}` });
    const text = shape("text", { x: x(marked), y: -7 }, moment(marked).slice(5, 16));
    return shape("g", { class: "mark" }, line, text);
  };
  const select = shape("rect", { class: "picked", height });
  const cursor = shape("g", { class: "cursor" });
  const after = until < end ? bandsOf([[until, end]], x, height) : "";
  const plot = shape(
    "g",
    { transform: `translate(${left} ${TOP})` },
    shape("path", { class: "beyond", d: after }),
    shape("path", { class: "gap", fill: "url(#hatch)", d: bandsOf(hit, x, height) }),
    shape("path", { class: "grid", d: grid }),
    ...ticks.map((tick, n) => shape("text", { class: "ends", x: -9, y: y(tick) + 4 }, texts[n])),
    ...times.map((time) => shape("text", { x: x(time), y: height + 20 }, timeText(time, step))),
    ...shown.map((one) => {
      const d = bars ? barsOf(one, x, y) : pathOf(one, x, y);
      return shape("path", { class: `${kind} ${one.ink}`, d });
    }),
    ...(empty ? [shape("text", { class: "none", x: width / 2, y: height / 2 }, empty)] : []),
    ...(!empty && marked >= start && marked < end ? [mark()] : []),
    shape("rect", { class: "plot", width, height }),
    select,
    cursor,
  );
  box.replaceChildren(
    shape("svg", { role: "img", "aria-label": label, width: wide, height: tall }, plot),
  );
  if (!charts.has(box)) listenTo(box);
  let last = charts.get(box)?.pointed() ?? null; // a resting pointer still points
  const point = (time) => {
    last = time;
    cursor.replaceChildren();
    if (time === null) return;
    const dots = shown.flatMap(({ ink, times: own, values, to }) => {
      const held = time < to ? (values[own.findLastIndex((each) => each <= time)] ?? null) : null;
      if (bars || held === null) return [];
      return [shape("circle", { class: `dot ${ink}`, cx: x(time), cy: y(held), r: 3.5 })];
    });
    cursor.append(shape("path", { d: `M${x(time)} 0V${height}` }), ...dots);
  };
  const grain = [60e6, 1e6].find((each) => each <= (end - start) / width) ?? 1;
  const timeAt = (place) =>
    within(Math.round((start + (place / width) * (end - start)) / grain) * grain);
  charts.set(box, {
    ...options,
    left,
    width,
    point,
    timeAt,
    pointed: () => last,
    momentAt: (place) => Math.min(timeAt(place), end - grain), // the end is not in the range
    select: (from, size) => {
      select.setAttribute("x", from);
      select.setAttribute("width", size);
    },
  });
  point(last >= start && last < end ? last : null);
  return point;
};
