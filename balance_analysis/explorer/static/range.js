// The visible range: its bounds, and its times and gaps in words.
import { RANGES, about, firstRange, go, isFrozen, span, state } from "./address.js";
import { DAY, moment } from "./text.js";
import { unit } from "./unit.js";

/** Return the range of tables: in a report, the smallest range with a button that covers the chart's. */
export const preset = (range = state.range) => {
  if (!isFrozen || !Array.isArray(range)) return range;
  return Object.keys(RANGES).find((name) => span(name)[0] <= range[0]) ?? "ALL";
};

export const bounds = (range = preset()) => {
  const [start, end] = span(range).map(Math.round);
  return Object.entries({ start, end: Math.max(end, start + 1) });
};

/** Return a range's last moment within the data. */
export const lastOf = ([, end]) => Math.min(Math.round(end), about.end) - 1;

/** Write a moment to the second, or in full if the user wants all digits or the chart shows less than a minute. */
export const when = (time, [start, end] = span()) =>
  moment(Math.round(time)).slice(0, state.digits || end - start < 60e6 ? undefined : 19);

export const between = (ends) =>
  ends.map((time) => when(time, ends).replace(/ 00:00:00$/, "")).join(" to ");

export const justBefore = (time) => `just before ${when(time + 1).replace(/ 00:00:00$/, "")}`;

/** Return a text with the parts of a range in which rows may be missing. */
export const gapsIn = ([start, end]) => {
  const hit = about.gaps.filter(([from, to]) => from < end && to > start);
  const more = hit.length > 3 ? `; ${hit.length - 3} more` : "";
  return hit.slice(0, 3).map(between).join("; ") + more;
};

/** Return why balances are unknown at a moment: rows up to then may be missing, or there are none. */
export const whyUnknown = (time) => {
  const gap = about.gaps.findLast(([from]) => from <= time);
  const before = "balances before an account's first row.";
  if (!gap) return `Unknown: ${before}`;
  return `Unknown: balances that may have changed in ${between(gap)}, until the next row; ${before}`;
};

/** Return a sentence on the gaps in a range, or "". */
export const missingIn = (range = preset()) => {
  const hit = gapsIn(span(range));
  return hit ? ` Rows may be missing: ${hit}.` : "";
};

/** Return the range of the tables, and why the page opens with it. */
export const intro = () => {
  const isLater = !about.opened && preset() === firstRange() && preset() !== "ALL";
  const later = ". Balances are unknown when the data begins, so the page opens with a later range";
  const times = preset() === "ALL" ? "All time" : `${between(span(preset()))} UTC`;
  return `${times}, in ${unit()}${isLater ? later : ""}.${missingIn()}`;
};

/** Return a text with a range, the unit and the gaps. */
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
