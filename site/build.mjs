// build.mjs DIRECTORY: the documents as pages, which need neither a server nor a network.
//
// Called by test/bin/site. The pages are README.md, what lies beside it and in doc/, and whatever these link to; there is no
// list of them, only an order of those that are known (order.mjs). A page lies where its text does: doc/jobs.md becomes
// doc/jobs.html, a README.md index.html, so that relative links stay what they are. A source file that is linked to becomes
// a page, too. A link to what does not exist is an error; anchors are looked at by check.mjs.
import { createRequire } from 'node:module';
import fs from 'node:fs';
import path from 'node:path';
import { groups, group_of } from './order.mjs';

const require = createRequire(new URL('../tmp_cache/site/', import.meta.url));
const markdown_it = require('markdown-it');
const anchor = require('markdown-it-anchor');
const highlighter = require('highlight.js');

const here = new URL('.', import.meta.url).pathname;
const top = path.dirname(path.resolve(here, '.'));
const target = process.argv[2];
const version = /^default_version *= *'(.*)'/m.exec(read('pg_sweep.control'))[1];
const pages = new Map();        // path of the text: its page
const pictures = new Set();
const waiting = [];
let failed = false;

function read(file)
{
	return fs.readFileSync(path.join(top, file), 'utf8');
}

function write(file, text)
{
	fs.mkdirSync(path.dirname(path.join(target, file)), { recursive: true });
	fs.writeFileSync(path.join(target, file), text);
}

function address(file)
{
	return file.replace(/(^|\/)README\.md$/, '$1index.md').replace(/(\.md)?$/, '.html');
}

function relative(from, to)
{
	return path.posix.relative(path.posix.dirname(from), to);
}

function escape(text)
{
	return text.replace(/[&<>"]/g, (c) => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' })[c]);
}

// As GitHub does, where the same texts are read, too.
function slug(text)
{
	return text.trim().toLowerCase().replace(/[^\p{L}\p{M}\p{N}\p{Pc}\- ]/gu, '').replace(/ /g, '-');
}

const languages = { sql: 'pgsql', sh: 'bash', conf: 'ini', js: 'javascript', redis: '' };

function highlight(text, name)
{
	const language = languages[name] ?? name;

	return highlighter.getLanguage(language) ? highlighter.highlight(text, { language }).value : escape(text);
}

const markdown = markdown_it({ html: true, highlight });
markdown.use(anchor, { slugify: slug, tabIndex: false, permalink: anchor.permalink.linkInsideHeader({ symbol: '#', class: 'anchor', ariaHidden: true }) });
const rules = markdown.renderer.rules;
// Comments tell the tests about examples. There is no other HTML.
rules.html_block = rules.html_inline = (tokens, i) => tokens[i].content.startsWith('<!--') ? '' : escape(tokens[i].content);
rules.fence = (tokens, i) => code(tokens[i].content, tokens[i].info.trim());
rules.table_open = () => '<div class="table" role="region" aria-label="table" tabindex="0"><table>\n';
rules.table_close = () => '</table></div>\n';
rules.image = (tokens, i) =>
{
	const source = escape(tokens[i].attrGet('src'));

	return `<a class="picture" href="${source}"><img src="${source}" alt="${escape(tokens[i].content)}" loading="lazy"></a>`;
};

function code(text, language)
{
	return `<pre tabindex="0"${language ? '' : ' class="output"'}><code>${highlight(text, language)}</code></pre>\n`;
}

function error(file, text)
{
	console.error(`${file}: ${text}`);
	failed = true;
}

// What a link in a text becomes in its page.
function rewrite(file, link)
{
	if (/^([a-z]+:|#)/.test(link))
		return link;
	const [name, fragment] = link.split('#');
	let wanted = path.posix.normalize(path.posix.join(path.posix.dirname(file), name));

	if (fs.existsSync(path.join(top, wanted, 'README.md')))
		wanted = path.posix.join(wanted, 'README.md');
	if (wanted.startsWith('..') || !fs.existsSync(path.join(top, wanted)) || fs.statSync(path.join(top, wanted)).isDirectory())
	{
		error(file, `a link to ${link}, which is no file`);
		return '#';
	}
	if (/\.(svg|png)$/.test(wanted))
	{
		pictures.add(wanted);
		return relative(address(file), wanted);
	}
	waiting.push(wanted);
	return relative(address(file), address(wanted)) + (fragment ? '#' + fragment : '');
}

// A document that a link names by its file gets its title.
function rewrite_links(file, tokens)
{
	tokens.forEach((token, i) =>
	{
		const name = token.type === 'image' ? 'src' : 'href';

		if ((token.type === 'link_open' || token.type === 'image') && token.attrGet('class') !== 'anchor')
		{
			const link = token.attrGet(name);

			token.attrSet(name, rewrite(file, link));
			if (/^[^: ]*\.md$/.test(tokens[i + 1]?.content) && tokens[i + 2].type === 'link_close')
				tokens[i + 1].content = title_of(path.posix.join(path.posix.dirname(file), link.split('#')[0])) ?? tokens[i + 1].content;
		}
		rewrite_links(file, token.children ?? []);
	});
}

function title_of(file)
{
	return fs.existsSync(path.join(top, file)) ? /^# ([^:\n]*)/m.exec(read(file))?.[1] : undefined;
}

// The texts of a heading; a function is its name.
function plain(tokens)
{
	return tokens.filter((token) => token.type === 'text' || token.type === 'code_inline').map((token) => token.content)
		.filter((text, i, all) => text !== '#' || i < all.length - 1).join('').trim();
}

function short(title)
{
	return /\w\(/.test(title) ? title.replace(/\(.*?\)(?= |,|$)/g, '').replace(/ →.*/, '') : title;
}

// Headings, and rows of tables that begin with a word of the program, which get an anchor each.
function index(tokens)
{
	const found = [];
	const ids = new Set();

	tokens.forEach((token, i) =>
	{
		if (token.type === 'heading_open')
		{
			found.push({ level: Number(token.tag[1]), title: plain(tokens[i + 1].children), id: token.attrGet('id') });
			ids.add(token.attrGet('id'));
		}
		if (token.type === 'tr_open' && tokens[i + 1].type === 'td_open' && tokens[i + 2].children[0]?.type === 'code_inline')
		{
			const title = plain(tokens[i + 2].children);
			const id = 'row-' + slug(title);

			if (ids.has(id) || title.length > 80 || title.length < 2)
				return;
			token.attrSet('id', id);
			ids.add(id);
			found.push({ level: 7, title, id });
		}
	});
	return found;
}

function render(file)
{
	if (!file.endsWith('.md'))
		return { file, title: path.posix.basename(file), entries: [], body: `<h1>${escape(file)}</h1>\n${code(read(file), '')}` };
	const tokens = markdown.parse(read(file), {});

	rewrite_links(file, tokens);
	const entries = index(tokens);

	return { file, title: entries[0]?.title ?? file, entries, body: markdown.renderer.render(tokens, markdown.options, {}) };
}

// The pages by groups, each in its order.
function ordered()
{
	const lists = new Map(groups.map(([name]) => [name, []]));

	for (const page of [...pages.values()].filter((each) => each.file.endsWith('.md')))
	{
		const [name, rank] = group_of(page.file);
		lists.get(name).push([rank, page]);
	}
	return [...lists].map(([name, list]) => [name, list.sort(([a, x], [b, y]) => a - b || (x.file < y.file ? -1 : 1)).map(([, page]) => page)])
		.filter(([, list]) => list.length > 0);
}

function navigation(current, lists)
{
	return lists.map(([name, list]) => `<h2>${name}</h2>\n<ul>\n` + list.map((page) =>
		`<li><a href="${relative(address(current.file), address(page.file))}"${page === current ? ' aria-current="page"' : ''}>${escape(page.title.split(': ')[0])}</a></li>\n`)
		.join('') + '</ul>\n').join('');
}

function contents(page)
{
	const entries = page.entries.filter(({ level }) => level === 2 || level === 3);

	return entries.length < 2 ? '' : `<nav class="contents" aria-label="On this page">\n<h2>On this page</h2>\n<ul>\n` +
		entries.map(({ level, title, id }) => `<li class="level${level}"><a href="#${id}">${escape(short(title))}</a></li>\n`).join('') + '</ul>\n</nav>\n';
}

function html(page, lists)
{
	const root = relative(address(page.file), '.') || '.';
	const title = page.file === 'README.md' ? 'pg_sweep' : `${page.title} · pg_sweep`;

	return `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${escape(title)}</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="${root}/site.css">
<script defer src="${root}/index.js"></script>
<script defer src="${root}/search.js" data-root="${root}"></script>
</head>
<body>
<a class="skip" href="#text">Skip to the text</a>
<header>
<button class="menu" popovertarget="pages" aria-label="Pages">☰</button>
<a class="brand" href="${root}/index.html">pg_sweep <small>${version}</small></a>
<div class="search" role="search">
<input type="search" placeholder="Search headings" aria-label="Search headings and names" autocomplete="off" spellcheck="false"
 role="combobox" aria-expanded="false" aria-controls="results" aria-autocomplete="list">
<ul id="results" role="listbox" aria-label="Results" hidden></ul>
</div>
</header>
<div class="page">
<nav id="pages" popover aria-label="Pages">
${navigation(page, lists)}</nav>
<main id="text">
${page.body}</main>
${contents(page)}</div>
</body>
</html>
`;
}

for (const folder of ['.', 'doc', ...fs.readdirSync(path.join(top, 'src')).map((room) => 'src/' + room).filter((room) => fs.existsSync(path.join(top, room, 'README.md')))])
	waiting.push(...fs.readdirSync(path.join(top, folder)).filter((name) => name.endsWith('.md')).map((name) => path.posix.join(folder, name)));
for (let file = waiting.shift(); file !== undefined; file = waiting.shift())
	if (!pages.has(file))
		pages.set(file, render(file));

const lists = ordered();
for (const page of pages.values())
	write(address(page.file), html(page, lists));
for (const picture of pictures)
	write(picture, read(picture));
for (const file of ['site.css', 'search.js'])
	write(file, fs.readFileSync(path.join(here, file)));
write('index.js', 'const search_index = ' + JSON.stringify([...lists.flatMap(([, list]) => list)].flatMap((page) =>
	page.entries.map(({ level, title, id }) => ({ level, title: short(title), page: page.title, address: address(page.file) + (level === 1 ? '' : '#' + id) })))) + ';\n');
console.error(`${pages.size} pages`);
process.exitCode = failed ? 1 : 0;
