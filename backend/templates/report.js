"use strict";
// The page is complete without this: here a place of the program is chosen, rows are sorted and found.
(() => {
  const byId = (id) => document.getElementById(id);

  const memory = () => {
    const slider = byId("place");
    if (!slider) return;
    const moments = JSON.parse(byId("moments").textContent);
    const cursor = byId("cursor");
    const plot = document.querySelector(".plot");
    const element = (name, className, text) => {
      const made = document.createElement(name);
      if (className) made.className = className;
      if (text !== undefined) made.textContent = text;
      return made;
    };
    const line = (piece) => {
      const item = element("li");
      const what = element("span", "what");
      what.append(element("b", "", piece.name), ` ${piece.what}`);
      item.append(element("span", `swatch ${piece.kind}`), what, element("span", "n", piece.bytes));
      return item;
    };
    const show = (at) => {
      const moment = moments[at];
      const where = moment.place === "CPU" ? ", on the CPU" : `, scratch of ${moment.place} included`;
      const head = element("p");
      head.append(element("b", "", moment.label), element("br"), `${moment.used} bytes in use${where}`);
      const list = element("ul");
      list.append(...moment.pieces.map(line));
      if (moment.more) list.append(element("li", "", `and ${moment.more} smaller`));
      byId("at").replaceChildren(head, list);
      slider.setAttribute("aria-valuetext", moment.label);
      cursor.setAttribute("x", (1000 * at) / moments.length);
    };
    const choose = (at) => {
      slider.value = Math.min(Math.max(at, 0), moments.length - 1);
      show(Number(slider.value));
    };
    slider.addEventListener("input", () => show(Number(slider.value)));
    byId("peak").addEventListener("click", () => choose(Number(slider.dataset.peak)));
    plot.addEventListener("click", (event) => {
      const box = plot.getBoundingClientRect();
      choose(Math.floor(((event.clientX - box.left) / box.width) * moments.length));
    });
    choose(Number(slider.dataset.peak));
  };

  const operators = () => {
    const body = byId("table").tBodies[0];
    const heads = [...byId("table").tHead.rows[0].cells];
    const rows = [...body.rows];
    const total = rows.length;

    // A cell that a longer one covers has no value: such rows go last.
    const value = (row, column) => (row.cells[column] ? row.cells[column].dataset.v : "");
    const compare = (column, isNumber, sign) => (one, other) => {
      const [a, b] = [value(one, column), value(other, column)];
      if (a === "" || b === "") return (a === "") - (b === "");
      return sign * (isNumber ? a - b : a.localeCompare(b, "en", { numeric: true }));
    };
    const sort = (column, order) => {
      const sign = order === "ascending" ? 1 : -1;
      const isNumber = heads[column].classList.contains("n");
      rows.sort((a, b) => compare(column, isNumber, sign)(a, b) || value(a, 0) - value(b, 0));
      body.append(...rows);
      heads.forEach((head, at) => {
        if (at === column) head.setAttribute("aria-sort", order);
        else head.removeAttribute("aria-sort");
      });
      byId("sort").value = String(column);
    };
    heads.forEach((head, column) => {
      head.firstElementChild.addEventListener("click", () => {
        const first = column > 0 && head.classList.contains("n") ? "descending" : "ascending";
        const second = first === "ascending" ? "descending" : "ascending";
        sort(column, head.getAttribute("aria-sort") === first ? second : first);
      });
    });
    byId("sort").addEventListener("change", (event) => {
      const column = Number(event.target.value);
      sort(column, column === 0 ? "ascending" : "descending");
    });

    const matches = (row, kind) => {
      if (!kind) return true;
      if (kind === "cascade") return row.hasAttribute("data-cascade");
      if (kind.startsWith("limit-")) return row.dataset.limit === kind.slice("limit-".length);
      return row.dataset.place === kind;
    };
    const filter = () => {
      const text = byId("find").value.trim().toLowerCase();
      const kind = byId("show").value;
      let shown = 0;
      for (const row of rows) {
        const found = row.cells[1].dataset.v.toLowerCase().includes(text) && matches(row, kind);
        row.hidden = !found;
        shown += found;
      }
      byId("count").textContent = `${shown} of ${total}`;
    };
    byId("find").addEventListener("input", filter);
    byId("show").addEventListener("change", filter);
    byId("controls").addEventListener("submit", (event) => event.preventDefault());
  };

  memory();
  operators();
})();
