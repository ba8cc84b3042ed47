// versions.js calls this with all versions that the site has, the newest first. A version without this page is opened at
// its first page.
function versions(all) {
  const { root, folder, page } = document.body.dataset;
  const select = document.getElementById("site-versions");
  const shown = select.options[0].text;
  select.replaceChildren(
    ...all.map(({ name }) => new Option(name === folder ? shown : name, name, false, name === folder)),
  );
  select.addEventListener("change", () => {
    const { name, pages } = all.find((version) => version.name === select.value);
    location.href = `${root}../${name}/${pages.includes(page) ? page + location.search : "index.html"}`;
  });
}

document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !event.target.closest("input, select, textarea")) {
    event.preventDefault();
    document.getElementById("site-query").focus();
  }
});
