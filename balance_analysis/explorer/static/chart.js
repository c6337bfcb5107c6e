// Charts of steps, bars and stacks over time, in SVG; the style sheet colours them. What is not known stays empty and is hatched.
import { calendar, scaleOf, timeText } from "./scale.js";
import { moment } from "./text.js";

const TALL = 320, LOW = 220, TOP = 18, RIGHT = 34, BELOW = 30, LINE = 16;
export const pen = document.createElement("canvas").getContext("2d");

export const shape = (tag, attributes, ...content) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...content);
  return made;
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

/** Return bars as a path: each over 85 % of its period, or of a stack, where each stands on a floor, over all of it. */
const barsOf = ({ times, ends, values, floors }, x, y) => times.map((time, n) => {
  const width = floors ? x(ends[n]) - x(time) : Math.max(1, 0.85 * (x(ends[n]) - x(time)));
  return values[n] ? `M${x(time)} ${y(floors?.[n] ?? 0)}V${y(values[n])}h${width}V${y(floors?.[n] ?? 0)}Z` : "";
}).join("");

/** Return stretches of time as a path, from the top to the bottom, each wide enough to be seen. */
const bandsOf = (stretches, x, height) =>
  stretches.map(([from, to]) => `M${x(from)} 0v${height}h${Math.max(3, x(to) - x(from))}v${-height}Z`).join("");

/** Return of a series what is between two moments, with what is held at the first, and nothing that can't be drawn. */
const cut = (one, { start, end, until = end, log, bars }) => {
  const to = Math.min(one.to ?? until, until, end);
  const from = bars ? one.ends.filter((time) => time <= start).length : Math.max(one.times.findLastIndex((time) => time <= start), 0);
  const after = one.times.findIndex((time) => time >= to), part = (all) => all?.slice(from, after < 0 ? undefined : after);
  const values = part(one.values).map((value) => (log && value <= 0 ? null : value));
  return { ...one, to, values, times: part(one.times), ends: part(one.ends), floors: part(one.floors) };
};

/** Return a text, or as much of its beginning as fits. */
export const fitted = (text, most) => {
  let kept = text;
  while (kept && pen.measureText(kept === text ? text : `${kept}…`).width > most) kept = kept.slice(0, -1);
  return kept === text ? text : `${kept.trimEnd()}…`;
};

/** Return places as near to those wanted as they can be where each keeps a distance, from 0 to a height. */
const spread = (wanted, apart, height) => {
  const order = wanted.map((_, n) => n).sort((one, two) => wanted[one] - wanted[two]), places = [];
  order.forEach((each, n) => { places[each] = Math.max(wanted[each], n ? places[order[n - 1]] + apart : 0); });
  order.reverse().forEach((each, n) => { places[each] = Math.min(places[each], n ? places[order[n - 1]] - apart : height); });
  return places;
};

/** Return the names of lines where these end, none over another, and what joins them to their lines. */
const namesOf = (lines, width, height, x, y) => {
  const last = lines.map(({ times, values, floors, to }) => {
    const place = values.findLastIndex((value) => value !== null), at = x(times[place + 1] ?? to);
    return { at, level: y(floors ? (values[place] + floors[place]) / 2 : values[place]) };
  });
  const places = spread(last.map(({ level }) => level), 14, height);
  return lines.flatMap(({ ink, name }, n) => [shape("path", { class: `joint ${ink}`, d: `M${last[n].at} ${last[n].level}H${width}L${width + 10} ${places[n]}h6` }),
    shape("text", { class: "name", x: width + 20, y: places[n] + 4 }, name)]);
};

const widthOf = (text, weight = "") => {
  const font = pen.font;
  pen.font = `${weight} ${font}`;
  const { width } = pen.measureText(text);
  pen.font = font;
  return width;
};

/** Write an amount for where there is little room; what is left out of it shows. */
const brief = (text) => {
  const number = Number(text.replaceAll(",", ""));
  if (text.length <= 20 || Number.isNaN(number)) return text;
  return `≈ ${new Intl.NumberFormat("en", { maximumSignificantDigits: 8, notation: Math.abs(number) < 1e15 ? "standard" : "scientific" }).format(number)}`;
};

/** Return what a chart tells beside the pointer: a box of lines, each a mark of its colour, a name and a text. */
const tipOf = (heading, rows, place, high, width, height) => {
  const named = Math.max(...rows.map(({ name }) => widthOf(name))) + 32, tall = LINE * (rows.length + 1) + 10;
  const wide = Math.max(widthOf(heading, 600), named + Math.max(...rows.map(({ text }) => widthOf(text)))) + 22;
  const left = place + 14 + wide > width && place - 14 - wide > -40 ? place - 14 - wide : Math.max(Math.min(place + 14, width + RIGHT - 4 - wide), -40);
  const top = Math.min(Math.max(high - tall / 2, 0), height - tall);
  return shape("g", { class: "tip", transform: `translate(${Math.round(left)} ${Math.round(top)})` }, shape("rect", { width: wide, height: tall, rx: 4 }),
    shape("text", { class: "head", x: 10, y: LINE }, heading),
    ...rows.flatMap(({ ink, name, text }, n) => [shape("path", { class: `line thick ${ink}`, d: `M12 ${LINE * (n + 2) - 4}h8` }),
      shape("text", { x: 28, y: LINE * (n + 2) }, name), shape("text", { class: "ends", x: wide - 10, y: LINE * (n + 2) }, text)]));
};

const charts = new WeakMap();

/** Listen to a pointer once for all that is drawn into a box: what it is over, what it drags over, a click, and a wheel. */
const hear = (box) => {
  let from = null, clicked;
  const on = (name, run) => box.addEventListener(name, (event) => {
    const chart = charts.get(box), { left, top } = box.getBoundingClientRect(), place = event.clientX - left - chart.left;
    run(chart, Math.min(Math.max(place, 0), chart.width), event, event.clientY - top - TOP);
  }, { passive: false });
  const leave = (chart, _, event) => {
    from = null;
    chart.select(0, 0);
    if (event.pointerType !== "touch") chart.point(null); // a finger leaves before one reads
  };
  const over = (chart, place, _, high) => {
    chart.onhover?.(chart.momentAt(place));
    chart.point(chart.momentAt(place), high);
    if (from !== null) chart.select(Math.min(from, place), Math.abs(place - from));
  };
  on("pointerdown", (chart, place, event, high) => {
    if (event.button !== 0) return;
    over(chart, place, event, high);
    if (!chart.onrange) return;
    from = place;
    box.setPointerCapture(event.pointerId);
  });
  on("pointermove", over);
  on("pointerup", (chart, place) => {
    if (from === null) return;
    const ends = Math.abs(place - from) < 4 ? [] : [from, place].sort((one, two) => one - two).map(chart.timeAt);
    from = null;
    chart.select(0, 0);
    clearTimeout(clicked);
    if (ends.length) chart.onrange(...ends);
    else clicked = setTimeout(() => chart.onpick?.(chart.momentAt(place)), 250); // it may become a double click
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
    if (shiftKey || Math.abs(deltaX) > Math.abs(deltaY)) chart.onpan(Math.sign(deltaX || deltaY) / 8);
    else chart.onwheel(deltaY > 0 ? 1.25 : 0.8, chart.timeAt(place));
  });
};

/**
 * Draw into a box, in place of what was drawn there; return what tells of a moment, or of none.
 * Series have an ink, which is a class, maybe an end, a name, and what tells a text of a moment;
 * times in microseconds (bars: and ends) and values, null where unknown; bars of a stack have
 * floors on which they stand; of levels, texts from the lowest up, values are places.
 */
export const draw = (box, options) => {
  const { series, start, end, gaps = [], until = end, bars, levels, label, marked, empty = "", headed = moment } = options, shown = series.map((one) => cut(one, options));
  const { ticks, texts, part } = scaleOf(shown.flatMap(({ values }) => values.filter((value) => value !== null)), options), isStack = shown.some(({ floors }) => floors);
  const wide = Math.max(box.clientWidth, 200), tall = levels ? 44 + 26 * levels.length : (bars && !isStack) || innerWidth < 600 ? LOW : TALL;
  pen.font = `12px ${getComputedStyle(box).fontFamily}`;
  const isThick = ({ values, floors }) => !floors || (part(values.at(-1)) - part(floors.at(-1))) * tall > 1; // thinner ones of a stack can't be seen
  const ended = bars && !isStack ? [] : shown.filter(({ name, values }) => name && values.some((value) => value !== null)).filter(isThick);
  const names = wide < 640 ? [] : ended.map((one) => ({ ...one, name: fitted(one.name, 0.24 * wide) }));
  const left = 14 + Math.max(21, ...texts.map((text) => pen.measureText(text).width)), right = Math.max(RIGHT, ...names.map(({ name }) => 24 + pen.measureText(name).width));
  const width = wide - left - right, height = tall - TOP - BELOW;
  const x = (time) => ((Math.min(Math.max(time, start), end) - start) / (end - start)) * width, y = (value) => height * (1 - part(value));
  const [times, step] = calendar(start, end, ((end - start) / width) * (end - start < 60e6 ? 130 : 84));
  const grid = [...ticks.map((tick) => `M-5 ${y(tick)}H${width}`), ...times.map((time) => `M${x(time)} 0V${height + 5}`)].join("");
  const missing = bandsOf(gaps.filter(([from, to]) => from < end && to > start), x, height);
  const kind = isStack ? "bar stack" : bars ? "bar" : levels ? "line thick" : "line", at = !empty && marked >= start && marked < end ? x(marked) : null;
  const select = shape("rect", { class: "picked", height }), cursor = shape("g", { class: "cursor" });
  const plot = shape("g", { transform: `translate(${left} ${TOP})` },
    shape("path", { class: "beyond", d: until < end ? bandsOf([[until, end]], x, height) : "" }),
    shape("path", { class: "gap", fill: "url(#hatch)", d: missing }), shape("path", { class: "grid", d: grid }),
    ...ticks.map((tick, n) => shape("text", { class: "ends", x: -9, y: y(tick) + 4 }, texts[n])),
    ...times.map((time) => shape("text", { x: x(time), y: height + 20 }, timeText(time, step))),
    ...shown.map((one) => shape("path", { class: `${kind} ${one.ink}`, d: bars ? barsOf(one, x, y) : pathOf(one, x, y) })),
    ...namesOf(names, width, height, x, y), ...(empty ? [shape("text", { class: "none", x: width / 2, y: height / 2 }, empty)] : []),
    ...(at === null ? [] : [shape("g", { class: "mark" }, shape("path", { d: `M${at} -4V${height}` }), shape("text", { x: at, y: -7 }, moment(marked).slice(5, 16)))]),
    shape("rect", { class: "plot", width, height }), select, cursor);
  box.replaceChildren(shape("svg", { role: "img", "aria-label": label, width: wide, height: tall }, plot));
  if (!charts.has(box)) hear(box);
  let [last, level] = charts.get(box)?.pointed() ?? [null, 0]; // a pointer that rests still points
  const point = (time = last, high = level) => {
    [last, level] = [time, high];
    cursor.replaceChildren();
    if (time === null) return;
    const said = (name) => (wide < 640 && widthOf(name) > 0.25 * wide ? "" : fitted(name, 0.3 * wide)); // there the colour alone tells it
    const told = shown.filter(({ tell }) => tell).map((one) => ({ ...one, name: said(one.name), text: brief(one.tell(time)) }));
    const held = shown.map((one) => (time < one.to ? one.values[one.times.findLastIndex((each) => each <= time)] ?? null : null));
    const dots = bars ? [] : shown.flatMap(({ ink }, n) => (held[n] === null ? [] : [shape("circle", { class: `dot ${ink}`, cx: x(time), cy: y(held[n]), r: 3.5 })]));
    cursor.append(shape("path", { d: `M${x(time)} 0V${height}` }), ...dots, ...(told.length ? [tipOf(headed(time), told, x(time), high, width, height)] : []));
  };
  const grain = [60e6, 1e6].find((each) => each <= (end - start) / width) ?? 1;
  const timeAt = (place) => Math.min(Math.max(Math.round((start + (place / width) * (end - start)) / grain) * grain, start), end);
  charts.set(box, { ...options, left, width, point, pointed: () => [last, level], timeAt, momentAt: (place) => Math.min(timeAt(place), end - grain), // the end is not in the range
    select: (from, size) => { select.setAttribute("x", from); select.setAttribute("width", size); } });
  point(last >= start && last < end ? last : null);
  return point;
};
