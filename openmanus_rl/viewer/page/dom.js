// Elements from values. Text only ever becomes text: there is no way from a string to markup here.

/** `h("a", {class: "x", href, onclick}, "text", element, …)`: null and false children are left out. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, entry] of Object.entries(value)) element.style.setProperty(key, entry);
    else if (name === "dataset") Object.assign(element.dataset, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  append(element, children);
  return element;
}

export function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
  return element;
}

/** New children in place of the old ones. What had the focus gives it to what stands in its place. */
export function fill(element, ...children) {
  const controls = () => [...element.querySelectorAll("a, button, input, select, summary")];
  const focused = controls().indexOf(document.activeElement);
  element.replaceChildren();
  append(element, children);
  if (focused >= 0) controls()[focused]?.focus({ preventScroll: true });
  return element;
}

/** An address within the page, such as `link("run", name, "episodes")`; every part is escaped. */
export function link(...parts) {
  return "#/" + parts.map((part) => encodeURIComponent(part)).join("/");
}

/** A button that copies `text` and says so. */
export function copyButton(label, text, title) {
  const button = h("button", { type: "button", class: "button", title: title ?? text }, label);
  button.addEventListener("click", async () => {
    let told = "Copied";
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      told = "Select and copy it by hand";
    }
    button.textContent = told;
    setTimeout(() => { button.textContent = label; }, 1600);
  });
  return button;
}
