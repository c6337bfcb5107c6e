// Charts of steps and bars over time. uPlot draws; what is not known stays empty and is hatched.
import { make } from "./text.js";

export const COLOURS = ["--c0", "--c1", "--c2", "--c3", "--c4", "--c5", "--c6", "--c7"];
const HEIGHT = 320, LOW = 220;

export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const tick = (seconds, step) => {
  const date = new Date(seconds * 1e3), isDay = step >= 86400 || seconds % 86400 === 0, how = step >= 86400 * 28 ? { month: "short", year: "numeric" }
    : isDay ? { day: "numeric", month: "short" } : { hour: "2-digit", minute: "2-digit", ...(step < 60 && { second: "2-digit" }) };
  return new Intl.DateTimeFormat("en-GB", { timeZone: "UTC", ...how }).format(date);
};

/** Return round numbers of a range: evenly spaced, or powers of 10, of a scale with both signs those around 0. */
const round = (min, max, log, isSigned) => {
  const power = 10 ** Math.floor(Math.log10((max - min) / 7)), even = [1, 2, 5, 10].find((each) => each * power >= (max - min) / 7) * power;
  if (!log) return Array.from({ length: 9 }, (_, n) => (Math.ceil(min / even) + n) * even).filter((each) => each <= max);
  const low = isSigned ? 0 : Math.floor(Math.log10(min)), high = Math.floor(Math.log10(Math.max(-min, max))), step = Math.max(1, Math.ceil((high - low) / 4));
  const found = Array.from({ length: 6 }, (_, n) => low + (n + (isSigned ? 1 : 0)) * step).flatMap((place) => (high - low < 3 && !isSigned ? [1, 2, 5] : [1]).map((each) => each * 10 ** place));
  return (isSigned ? [...found.map((each) => -each).reverse(), 0, ...found] : found).filter((each) => each >= min && each <= max);
};

/** Write ticks with as many digits as tell them apart. */
const numbers = (splits, style) => {
  const most = Math.max(...splits.map(Math.abs)), digits = Math.min(Math.max(3, Math.ceil(Math.log10(most / (splits[1] - splits[0]))) + 1 || 0), 15);
  const { format } = new Intl.NumberFormat("en", { style, notation: most < 1e15 ? "compact" : "scientific", maximumSignificantDigits: digits });
  return splits.map((split) => (split === 0 ? "0" : format(split)));
};

/** Hatch the stretches that are not known to be complete, and mark where the data ends. */
const mark = (gaps, until) => (u) => {
  const { min, max } = u.scales.x, place = (time) => u.valToPos(Math.min(Math.max(time / 1e6, min), max), "x");
  for (const [name, from, to] of [...gaps.map((gap) => ["gap", ...gap]), ["beyond", until, Infinity]]) {
    const made = make("div", { class: name });
    made.style.left = `${place(from)}px`;
    made.style.width = `${place(to) - place(from)}px`;
    if (to / 1e6 > min && from / 1e6 < max) u.under.append(made);
  }
};

/**
 * Draw into a box; return the chart, to be destroyed before another one is drawn there.
 * Series have a label, a colour's name, maybe a dash and an end, times in microseconds and values, null where unknown;
 * of levels, texts from the lowest up, values are places.
 */
export const draw = (box, { series, start, end, gaps = [], until = end, log, bars, levels, style, label, onrange, onwheel, onhover }) => {
  const most = series.reduce((all, { values }) => values.reduce((one, value) => Math.max(one, Math.abs(value)), all), 1), scale = 10 ** Math.max(0, Math.floor(Math.log10(most)) - 5);
  const tables = series.map(({ times, values, to = until }) => {
    const drawn = values.map((value) => (value === null || (log && !bars && value <= 0) ? null : value / scale)); // the library has no ticks for large numbers
    const first = bars ? 0 : Math.max(times.findLastIndex((time) => time <= start), 0); // what is held at the start counts for the scale
    const points = times.slice(first).map((time, n) => [bars ? time : Math.max(time, start), drawn[first + n]]).concat(bars || !times.length ? [] : [[Math.min(until, to), drawn.at(-1)]]);
    const steps = points.flatMap(([time, value], n) => { // a step goes on to where it becomes unknown, the last one to the end of what is known
      const before = points[n - 1]?.[1] ?? null;
      return bars || value !== null || before === null ? [[time, value]] : [[time, before], [time + 1, null]];
    });
    return [steps.map(([time]) => time / 1e6), steps.map(([, value]) => value)];
  });
  const data = tables.length ? uPlot.join(tables, tables.map(() => [1, 1])) : [[start / 1e6, end / 1e6]];
  const ink = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), size: 5 } };
  const paths = bars ? uPlot.paths.bars({ size: [0.85, Infinity], align: 1 }) : uPlot.paths.stepped({ align: 1 });
  const ticks = levels ? { splits: () => levels.map((_, n) => n), values: () => levels }
    : { incrs: [1e300], filter: (_, splits) => splits, splits: (_, __, min, max) => round(min * scale, max * scale, log, bars).map((each) => each / scale),
      values: (_, splits) => numbers(splits.map((split) => split * scale), style) };
  const chart = new uPlot({
    width: Math.max(box.clientWidth, 200),
    height: levels ? 44 + 26 * levels.length : bars || innerWidth < 600 ? LOW : HEIGHT,
    legend: { show: false },
    cursor: { y: false, drag: { x: Boolean(onrange), y: false, setScale: false }, points: { show: false } },
    scales: { x: { time: true, range: () => [start / 1e6, end / 1e6] }, y: { distr: !log ? 1 : bars ? 4 : 3, asinh: 1 / scale, ...(levels && { range: () => [-0.4, levels.length - 0.6] }) } },
    axes: [
      { ...ink, size: 32, space: 90, values: (_, splits, __, ___, step) => splits.map((split) => tick(split, step)) },
      { ...ink, size: (_, texts) => 18 + 7 * Math.max(3, ...(texts ?? []).map((text) => text?.length ?? 0)), ...ticks },
    ],
    tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1e3), "Etc/UTC"),
    series: [{}, ...series.map((one) => ({
      label: one.label, stroke: colour(one.colour), width: bars ? 0 : levels ? 3 : 1.75, dash: one.dash, paths,
      fill: bars ? colour(one.colour) : undefined, points: { show: Boolean(levels), fill: colour("--paper") },
    }))],
    hooks: {
      ready: [mark(gaps, until)],
      setCursor: [(u) => u.cursor.left >= 0 && onhover?.(u.posToVal(u.cursor.left, "x") * 1e6)],
      setSelect: [({ select, posToVal }) => {
        const { left, width } = select;
        select.width = 0; // a chart that has been replaced meanwhile still hears of the mouse
        if (width > 3) setTimeout(onrange, 0, posToVal(left, "x") * 1e6, posToVal(left + width, "x") * 1e6);
      }],
    },
  }, data, box);
  chart.root.setAttribute("role", "img");
  chart.root.setAttribute("aria-label", label);
  if (onwheel) {
    chart.over.addEventListener("wheel", (event) => {
      event.preventDefault();
      onwheel(event.deltaY > 0 ? 1.25 : 0.8, chart.posToVal(event.offsetX, "x") * 1e6);
    }, { passive: false });
  }
  return chart;
};
