// The search. index.js calls index with all sections.
const most = 50;

function index(sections) {
  const input = document.getElementById("site-query");
  input.value = new URLSearchParams(location.search).get("q") ?? "";
  const all = sections.map((section) => ({
    ...section,
    in: [section.title, section.heading, section.text].map((text) => text.toLowerCase()),
  }));
  const show = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = words.length ? all.map((s) => [rank(s, words), s]).filter(([points]) => points > 0) : [];
    found.sort(([a], [b]) => b - a);
    document.getElementById("site-found").textContent = words.length
      ? `${found.length} ${found.length === 1 ? "section" : "sections"}` +
        (found.length > most ? `, of which the best ${most} are shown` : "")
      : "Type what you look for.";
    document.getElementById("site-results").replaceChildren(...found.slice(0, most).map(([, s]) => result(s, words)));
  };
  show();
  input.addEventListener("input", show);
  input.form.addEventListener("submit", (event) => {
    event.preventDefault();
    history.replaceState(null, "", `?q=${encodeURIComponent(input.value)}`);
    show();
  });
  input.focus();
}

// rank is 0 if a word is missing. A word counts more in a title than in a heading, and more there than in the text; more
// where it begins a word; and more if it comes again.
function rank(section, words) {
  let points = 0;
  for (const word of words) {
    const [title, heading, text] = section.in.map((part) => occurrences(part, word));
    const sum = 8 * Math.min(title, 1) + 6 * Math.min(heading, 1) + Math.min(text, 4);
    if (sum === 0) return 0;
    points += sum;
  }
  if (section.in.some((part) => part.replace(/[^\p{L}\p{N}]+/gu, " ").includes(words.join(" ")))) points += 4 * (words.length - 1);
  return points;
}

// occurrences counts a word in a text; one that begins within another word counts half.
function occurrences(text, word) {
  let count = 0;
  for (let found = text.indexOf(word); found >= 0; found = text.indexOf(word, found + word.length)) {
    count += found > 0 && /[\p{L}\p{N}]/u.test(text[found - 1]) ? 0.5 : 1;
  }
  return count;
}

function result(section, words) {
  const link = document.createElement("a");
  link.href = section.page + (section.id && `#${section.id}`);
  link.append(section.heading && section.heading !== section.title ? `${section.title}: ${section.heading}` : section.title);
  const excerpt = document.createElement("p");
  excerpt.append(...marked(cut(section, words), words));
  const item = document.createElement("li");
  item.append(link, excerpt);
  return item;
}

// cut returns the text around the first word that it has.
function cut(section, words) {
  const first = Math.min(...words.map((word) => section.in[2].indexOf(word)).filter((i) => i >= 0), section.text.length);
  const from = Math.max(0, section.text.lastIndexOf(" ", Math.max(0, first - 60)));
  return (from ? "… " : "") + section.text.slice(from, from + 240) + (from + 240 < section.text.length ? " …" : "");
}

// marked returns a text as nodes, with the words in <mark>.
function marked(text, words) {
  const escaped = words.map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  return text.split(new RegExp(`(${escaped.join("|")})`, "i")).map((part, i) => {
    if (i % 2 === 0) return part;
    const mark = document.createElement("mark");
    mark.textContent = part;
    return mark;
  });
}
