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

// Heads of a table whose columns are [title, value, class, hint]. A click sorts by a column, the next one turns the order
// round, and a third gives the first order again. `sorting` is {by, falling}, where by is null for the order of the list.
function heads(target, columns, sorting, draw) {
  const head = put(put(target, "thead"), "tr"), first = sorting.by;
  columns.forEach(([name, value, className, hint], column) => {
    const cell = put(head, "th", value ? undefined : name, className);
    cell.scope = "col";
    if (!value) return;
    const button = put(cell, "button", name);
    button.type = "button";
    if (hint) button.title = hint;
    button.addEventListener("click", () => {
      const again = sorting.by === column;
      Object.assign(sorting, again && sorting.falling ? { by: first, falling: false } : { by: column, falling: again });
      [...head.cells].forEach((each, position) => {
        if (position === sorting.by) each.setAttribute("aria-sort", sorting.falling ? "descending" : "ascending");
        else each.removeAttribute("aria-sort");
      });
      draw();
    });
  });
}
// Rows without a value come last in both orders.
function sorted(list, columns, { by, falling }) {
  if (by === null) return list;
  const value = columns[by][1], sign = falling ? -1 : 1;
  return [...list].sort((one, other) => {
    const [first, second] = [value(one) ?? null, value(other) ?? null];
    return (first === null) - (second === null) || sign * (first < second ? -1 : first > second ? 1 : 0);
  });
}
