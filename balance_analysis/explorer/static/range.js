// The range that is shown: its bounds, and its times and gaps in words.
import { RANGES, about, firstRange, go, isFrozen, span, state } from "./address.js";
import { DAY, moment } from "./text.js";
import { unit } from "./unit.js";

/** Return the range of a table: in a report, the smallest one with a button around the chart's. */
export const preset = (range = state.range) => {
  if (!isFrozen || !Array.isArray(range)) return range;
  return Object.keys(RANGES).find((name) => span(name)[0] <= range[0]) ?? "ALL";
};

export const bounds = (range = preset()) => {
  const [start, end] = span(range).map(Math.round);
  return Object.entries({ start, end: Math.max(end, start + 1) });
};

/** Return the last moment of a range that the data have. */
export const lastOf = ([, end]) => Math.min(Math.round(end), about.end) - 1;

/** Write a moment: to the second, unless all digits are asked for or the chart shows less than a minute. */
export const when = (time, [start, end] = span()) =>
  moment(Math.round(time)).slice(0, state.digits || end - start < 60e6 ? undefined : 19);

export const between = (ends) =>
  ends.map((time) => when(time, ends).replace(/ 00:00:00$/, "")).join(" to ");

export const justBefore = (time) => `just before ${when(time + 1).replace(/ 00:00:00$/, "")}`;

/** Return the parts of a range in which rows may be missing, in words. */
export const gapsIn = ([start, end]) => {
  const hit = about.gaps.filter(([from, to]) => from < end && to > start);
  const more = hit.length > 3 ? `; ${hit.length - 3} more` : "";
  return hit.slice(0, 3).map(between).join("; ") + more;
};

/** Return why balances of a moment are unknown: rows that may be missing up to then, or were never seen. */
export const whyUnknown = (time) => {
  const gap = about.gaps.findLast(([from]) => from <= time);
  const before = "what accounts held before their first row.";
  if (!gap) return `Not known: ${before}`;
  return `Not known: what may have changed in ${between(gap)}, until an account's next row; ${before}`;
};

/** Return a sentence on the gaps in a range, or nothing. */
export const missingIn = (range = preset()) => {
  const hit = gapsIn(span(range));
  return hit ? ` Rows may be missing: ${hit}.` : "";
};

/** Return the range of the tables, and why the page opens with it. */
export const intro = () => {
  const isLater = !about.opened && preset() === firstRange() && preset() !== "ALL";
  const later = ". The data begin without balances, so the page opens with a later range";
  const times = preset() === "ALL" ? "All of the time" : `${between(span(preset()))} UTC`;
  return `${times}, in ${unit()}${isLater ? later : ""}.${missingIn()}`;
};

/** Return a range, the unit and the gaps, in words. */
export const over = (range = preset()) =>
  `${between(span(range))} UTC, in ${unit()}.${missingIn(range)}`;

export const zoom = (from, to) => {
  const grain = to - from > 3600e6 ? 1e6 : 1;
  const length = Math.min(Math.max(to - from, 1000), about.end - about.start + DAY);
  const first = Math.min(Math.max(from, about.start - DAY / 2), about.end);
  const start = Math.round(first / grain) * grain;
  if (start <= about.start && start + length >= about.end) return go({ range: "ALL" }, true);
  go({ range: `${Math.max(0, start)}..${start + Math.round(length / grain) * grain}` }, true);
};

export const panBy = (part, [start, end] = span()) =>
  zoom(start + part * (end - start), end + part * (end - start));

export const zoomBy = (by, centre = (span()[0] + span()[1]) / 2) =>
  zoom(centre - (centre - span()[0]) * by, centre + (span()[1] - centre) * by);
