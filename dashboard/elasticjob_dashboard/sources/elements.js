// Makes elements. Whatever a job reports is inserted as text: there is no way here to insert HTML.
const by = id => document.getElementById(id);

function put(parent, tag, text, className) {
  const child = document.createElement(tag);
  if (text !== undefined) child.textContent = text;
  if (className) child.className = className;
  parent.append(child);
  return child;
}

// Changes text only where it differs, so that a selection of the reader stays.
function write(element, text) {
  if (element.textContent !== String(text)) element.textContent = text;
}

function mark(element, className) {
  if (element.className !== className) element.className = className;
}

// A row is {cells, bad}. Columns whose title begins with "-" are left out by phones; those with "|" never wrap.
function table(id, titles, rows) {
  const target = by(id), kinds = { "-": "minor", "|": "short-text" }, classes = titles.map(title => kinds[title[0]] || "");
  const key = JSON.stringify([titles, rows]);
  if (target.dataset.shown === key) return;
  target.dataset.shown = key;
  target.replaceChildren();
  const head = put(put(target, "thead"), "tr");
  titles.forEach((title, column) => { put(head, "th", title.replace(/^[-|]/, ""), classes[column]).scope = "col"; });
  const body = put(target, "tbody");
  for (const { cells, bad } of rows) {
    const row = put(body, "tr", undefined, bad ? "bad" : "");
    cells.forEach((cell, column) => put(row, "td", cell, classes[column]));
  }
}

// Returns a function that adds a name and its value to an emptied list, and returns the value's element.
function into(id) {
  const list = by(id);
  list.replaceChildren();
  return (name, value, className) => {
    const pair = put(list, "div");
    put(pair, "dt", name);
    return put(pair, "dd", value, className);
  };
}

// A bar whose parts are [amount, className, name].
function parts(target, list) {
  const shown = list.filter(([amount]) => amount > 0);
  while (target.children.length > shown.length) target.lastChild.remove();
  shown.forEach(([amount, className, name], position) => {
    const part = target.children[position] || put(target, "span");
    part.className = className;
    part.style.flexGrow = amount;
    part.title = name;
  });
}
function key(target, list) {
  target.replaceChildren();
  for (const [value, className, name] of list) {
    const item = put(target, "li");
    put(item, "i", "", className);
    item.append(`${name} `);
    put(item, "b", value);
  }
}

// Keeps one element for each of a list by its key, in their order; so focus and selection remain when values change.
function keep(kept, listed, key, parent, make, fill) {
  const names = new Set(listed.map(each => each[key]));
  for (const [name, element] of kept) if (!names.has(name)) { element.remove(); kept.delete(name); }
  listed.forEach((each, position) => {
    if (!kept.has(each[key])) kept.set(each[key], make());
    const element = kept.get(each[key]);
    if (parent.children[position] !== element) parent.insertBefore(element, parent.children[position] || null);
    fill(element, each);
  });
}
