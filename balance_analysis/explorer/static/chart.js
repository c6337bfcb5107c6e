// Charts of steps and bars over time. uPlot draws; what is not known stays empty and is hatched.
import { make } from "./text.js";

export const COLOURS = ["--c0", "--c1", "--c2", "--c3", "--c4", "--c5", "--c6", "--c7"];
const HEIGHT = 340, LOW = 240;
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
const MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(" ");

export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const tick = (seconds, step) => {
  const date = new Date(seconds * 1e3), text = date.toISOString();
  if (step >= 86400 * 28) return `${MONTHS[date.getUTCMonth()]} ${date.getUTCFullYear()}`;
  if (step >= 86400 || text.slice(11, 19) === "00:00:00") return `${date.getUTCDate()} ${MONTHS[date.getUTCMonth()]}`;
  return step >= 60 ? text.slice(11, 16) : text.slice(11, 19);
};

const hatch = (context) => {
  const tile = make("canvas", { width: "8", height: "8" });
  const ink = tile.getContext("2d");
  ink.strokeStyle = colour("--hatch");
  ink.lineWidth = 1.5;
  ink.stroke(new Path2D("M-2 10 10 -2 M-2 2 2 -2 M6 10 10 6"));
  return context.createPattern(tile, "repeat");
};

/** Hatch the stretches that are not known to be complete, and draw where the data ends. */
const shade = (gaps, end) => (u) => {
  const { left, top, width, height } = u.bbox, { min, max } = u.scales.x, ink = u.ctx;
  const place = (time) => Math.round(u.valToPos(Math.min(Math.max(time, min), max), "x", true));
  ink.save();
  ink.fillStyle = hatch(ink);
  for (const [from, to] of gaps) {
    if (to / 1e6 > min && from / 1e6 < max) {
      ink.fillRect(place(from / 1e6), top, Math.max(place(to / 1e6) - place(from / 1e6), 3), height);
    }
  }
  if (end / 1e6 < max) {
    ink.fillStyle = colour("--beyond");
    ink.fillRect(place(end / 1e6), top, left + width - place(end / 1e6), height);
    ink.fillStyle = colour("--muted");
    ink.fillRect(place(end / 1e6), top, 1, height);
  }
  ink.restore();
};

/**
 * Draw into a box; return the chart, to be destroyed before another one is drawn there.
 * Series have a label, a colour's name, maybe a dash, times in microseconds and values, null where unknown.
 */
export const draw = (box, { series, start, end, gaps, until, log, bars, label, onrange, onhover }) => {
  const tables = series.map(({ times, values }) => {
    const drawn = values.map((value) => (log && value !== null && value <= 0 ? null : value));
    const rest = bars || !times.length ? [] : [until]; // the last step goes on to the end of the data
    return [[...times, ...rest].map((time) => time / 1e6), [...drawn, ...rest.map(() => drawn.at(-1))]];
  });
  const data = tables.length ? uPlot.join(tables, tables.map(() => [1, 1])) : [[start / 1e6, end / 1e6]];
  const ink = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
  const paths = bars ? uPlot.paths.bars({ size: [0.8, 40] }) : uPlot.paths.stepped({ align: 1 });
  const chart = new uPlot({
    width: Math.max(box.clientWidth, 200),
    height: bars || innerWidth < 600 ? LOW : HEIGHT,
    legend: { show: false },
    cursor: { drag: { x: Boolean(onrange), y: false, setScale: false }, points: bars ? { show: false } : {} },
    scales: { x: { time: true, range: () => [start / 1e6, end / 1e6] }, y: { distr: log ? 3 : 1 } },
    axes: [
      { ...ink, space: 90, values: (_, splits, __, ___, step) => splits.map((split) => tick(split, step)) },
      { ...ink, size: 62, values: (_, splits) => splits.map((split) => (split === null ? null : compact.format(split))) },
    ],
    tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1e3), "Etc/UTC"),
    series: [{}, ...series.map((one) => ({
      label: one.label, stroke: colour(one.colour), width: bars ? 0 : 1.75, dash: one.dash, paths,
      fill: bars ? colour(one.colour) : undefined, points: { show: false },
    }))],
    hooks: {
      drawClear: [shade(gaps, until)],
      setCursor: [(u) => u.cursor.left >= 0 && onhover?.(u.posToVal(u.cursor.left, "x") * 1e6)],
      setSelect: [(u) => {
        const { left, width } = u.select;
        if (width < 4) return;
        onrange?.(u.posToVal(left, "x") * 1e6, u.posToVal(left + width, "x") * 1e6);
        u.setSelect({ width: 0, height: 0 }, false);
      }],
    },
  }, data, box);
  chart.root.setAttribute("role", "img");
  chart.root.setAttribute("aria-label", label);
  if (onrange) {
    chart.over.addEventListener("wheel", (event) => {
      event.preventDefault();
      const centre = chart.posToVal(event.offsetX, "x") * 1e6;
      const by = event.deltaY > 0 ? 1.25 : 0.8;
      onrange(centre - (centre - start) * by, centre + (end - centre) * by);
    }, { passive: false });
  }
  return chart;
};
