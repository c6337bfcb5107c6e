// Lines beside each other: as an index, and the difference of two. Floats, for drawing; not known stays so.

/** Return what an index of a line is 100 of: its first value above 0 in a range, if there is one. */
export const baseOf = ({ times }, values, start) => values.slice(Math.max(times.findLastIndex((time) => time <= start), 0)).find((each) => each > 0);

export const indexed = (values, base) => values.map((each) => (each === null || base === undefined ? null : (100 * each) / base));

/** Return the first of two balances less the second, exactly; null where one isn't known. */
export const less = (one, other) => ((one ?? null) === null || (other ?? null) === null ? null : String(BigInt(one) - BigInt(other)));

/** Return the difference of two lines, as one. */
export const differenceOf = (one, other) => {
  const times = [...new Set([...one.times, ...other.times])].sort((a, b) => a - b), places = [-1, -1];
  const balances = times.map((time) => less(...[one, other].map((line, n) => {
    while (line.times[places[n] + 1] <= time) places[n] += 1;
    return line.balances[places[n]];
  })));
  return { times, balances, to: Math.min(one.to, other.to) };
};
