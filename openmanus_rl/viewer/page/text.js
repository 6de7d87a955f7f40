// Text that a model or a world wrote. It is hostile: shown as text, its control characters made visible, its direction
// kept to itself, and no more of it at once than a browser lays out quickly.
import { h } from "./dom.js";

const SHOWN_AT_ONCE = 4000;
const MORE_AT_ONCE = 20000;

// C0 (without newline and tab), DEL, C1, soft hyphen, zero-width and direction marks, line separators, fillers, BOM, tags.
const HIDDEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb\u{e0000}-\u{e0fff}]/gu;

/** A control character as something to see: ␛ for the old ones, its number for the others. */
export function visible(character) {
  const code = character.codePointAt(0);
  if (code < 0x20) return String.fromCodePoint(0x2400 + code);
  if (code === 0x7f) return "␡";
  return `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
}

/** A text for where only a string can stand: labels, options, canvases. */
export function plain(text) {
  return String(text ?? "").replace(HIDDEN, visible);
}

/** Nodes for a text, with every hidden character as a small mark. */
export function textNodes(text) {
  const nodes = [];
  let end = 0;
  for (const match of text.matchAll(HIDDEN)) {
    if (match.index > end) nodes.push(text.slice(end, match.index));
    nodes.push(h("span", { class: "hidden-character", title: "a control character" }, visible(match[0])));
    end = match.index + match[0].length;
  }
  if (end < text.length) nodes.push(text.slice(end));
  return nodes;
}

/** A text on one line, for tables and labels. */
export function inline(text, longest = 120) {
  const whole = String(text ?? "");
  return oneLine(whole, whole.length > longest ? whole.slice(0, safeEnd(whole, longest)) + " …" : whole);
}

/** A name on one line; a long one is cut in its middle. */
export function named(name, longest = 60) {
  return oneLine(String(name ?? ""), shortened(name, longest));
}

/** A name that is no longer than that: its start and its end, where runs of one name have their numbers. */
export function shortened(name, longest = 40) {
  const whole = String(name ?? "");
  if (whole.length <= longest) return whole;
  const kept = Math.floor((longest - 1) / 3);
  return whole.slice(0, safeEnd(whole, 2 * kept)) + "…" + whole.slice(safeEnd(whole, whole.length - kept));
}

/** A text for an attribute: all of it, unless it is too long for that. */
export function hint(text, longest = 400) {
  const whole = String(text ?? "");
  return whole.length <= longest ? plain(whole) : `${plain(whole.slice(0, safeEnd(whole, longest)))} … (${whole.length} characters)`;
}

function oneLine(whole, shown) {
  return h("bdi", { class: "inline-text", title: shown === whole ? null : hint(whole) },
    textNodes(shown.replaceAll("\n", " ⏎ ").replaceAll("\t", " ")));
}

/** A text with its lines. A long one is cut, with a control that shows more of it. */
export function block(text, shownAtOnce = SHOWN_AT_ONCE) {
  const whole = String(text ?? "");
  const body = h("div", { class: "block-text", dir: "auto" });
  let end = 0;
  const control = h("button", { type: "button", class: "button more" });
  const show = (count) => {
    const next = safeEnd(whole, end + count);
    body.append(h("span", {}, textNodes(whole.slice(end, next))));
    end = next;
    const left = whole.length - end;
    control.textContent = `Show more (${left.toLocaleString("en-US")} characters are left)`;
    if (!left) control.remove();
  };
  show(shownAtOnce);
  control.addEventListener("click", () => show(MORE_AT_ONCE));
  return h("div", { class: "text" }, body, end < whole.length && control);
}

/** Not in the middle of a surrogate pair. */
function safeEnd(text, end) {
  if (end >= text.length) return text.length;
  const code = text.charCodeAt(end - 1);
  return code >= 0xd800 && code < 0xdc00 ? end + 1 : end;
}
