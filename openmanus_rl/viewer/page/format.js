// Numbers and times as people read them.

export function number(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (Number.isInteger(value)) return minus(value.toLocaleString("en-US"));
  const size = Math.abs(value);
  if (size >= 1000) return minus(value.toLocaleString("en-US", { maximumFractionDigits: Math.max(0, digits - 3) }));
  if (size > 0 && size < 0.001) return minus(value.toExponential(Math.max(0, digits - 2)));
  return minus(String(Number(value.toPrecision(digits))));
}

/** Everywhere the same sign, as wide as a plus. */
function minus(text) {
  return text.replaceAll("-", "−");
}

export function signed(value, digits = 3) {
  if (value === null || value === undefined) return "–";
  return (value > 0 ? "+" : value < 0 ? "−" : "") + number(Math.abs(value), digits);
}

export function percent(rate, digits = 1) {
  return rate === null || rate === undefined ? "–" : `${(100 * rate).toFixed(digits)} %`;
}

export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value < 0.0995) return `${number(value * 1000, 2)} ms`;
  if (value < 60) return `${number(value, 2)} s`;
  if (value < 3600) return `${Math.floor(value / 60)} min ${Math.round(value % 60)} s`;
  return `${Math.floor(value / 3600)} h ${Math.round((value % 3600) / 60)} min`;
}

export function ago(time) {
  if (!time) return "–";
  const past = Date.now() / 1000 - time;
  if (past < 5) return "just now";
  if (past < 60) return `${Math.round(past)} s ago`;
  if (past < 5400) return `${Math.round(past / 60)} min ago`;
  if (past < 129600) return `${Math.round(past / 3600)} h ago`;
  return new Date(time * 1000).toLocaleDateString("en-CA");
}

export function clock(time) {
  return new Date(time * 1000).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "medium" });
}

export function plural(count, one, many = `${one}s`) {
  return `${number(count)} ${count === 1 ? one : many}`;
}

export function shown(value) {
  if (typeof value === "string") return value;
  return value === undefined ? "–" : JSON.stringify(value);
}
