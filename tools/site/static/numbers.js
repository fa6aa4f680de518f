// Sphinx leaves numbers out of a query; people search for 503 and Xid 79. conf.py puts them into the index.
document.addEventListener("DOMContentLoaded", () => {
  if (typeof Search === "undefined") return;
  const parse = Search._parseQuery;
  Search._parseQuery = (query) => {
    const found = parse(query);
    (query.match(/\b\d{2,3}\b/g) || []).forEach((number) => found[1].add(number));
    return found;
  };
});
