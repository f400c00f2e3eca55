// search.js: finds headings, and names that a row of a table begins with, in index.js, as one types.
// "/" goes to the field, arrows choose, Enter opens, Escape closes.
'use strict';
{
	const root = document.currentScript.dataset.root;
	const field = document.querySelector('.search input');
	const list = document.getElementById('results');
	const most = 12;
	let chosen = 0;

	// Smaller is better; undefined where a word is missing.
	function rank(entry, words)
	{
		const title = entry.title.toLowerCase();
		const page = entry.page.toLowerCase();

		if (!words.every((word) => title.includes(word) || page.includes(word)) || !words.some((word) => title.includes(word)))
			return undefined;
		const begins = words.every((word) => new RegExp('(^|[^a-z0-9])' + word.replace(/[^a-z0-9]/g, '\\$&')).test(title));

		return (title === words.join(' ') ? 0 : begins ? 100 : 200) + entry.level * 5 + Math.min(title.length, 50) / 10 - (entry.address.startsWith('doc/reference') ? 20 : 0);
	}

	function find(text)
	{
		const words = text.toLowerCase().split(/\s+/).filter(Boolean);

		return words.length === 0 ? [] : search_index.map((entry) => [rank(entry, words), entry]).filter(([value]) => value !== undefined)
			.sort(([a], [b]) => a - b).slice(0, most).map(([, entry]) => entry);
	}

	function choose(number)
	{
		const items = list.querySelectorAll('[role="option"]');

		if (items.length === 0)
			return;
		chosen = (number + items.length) % items.length;
		items.forEach((item, i) => item.setAttribute('aria-selected', String(i === chosen)));
		field.setAttribute('aria-activedescendant', items[chosen].id);
		items[chosen].scrollIntoView({ block: 'nearest' });
	}

	function show()
	{
		const found = find(field.value);

		list.replaceChildren(...found.map((entry, i) =>
		{
			const item = document.createElement('li');
			const link = document.createElement('a');
			const page = document.createElement('small');

			item.id = 'result' + i;
			item.setAttribute('role', 'option');
			link.href = root + '/' + entry.address;
			link.tabIndex = -1;
			page.textContent = entry.page;
			link.append(entry.title, page);
			item.append(link);
			return item;
		}));
		if (found.length === 0)
		{
			const none = document.createElement('li');

			none.className = 'none';
			none.textContent = 'No heading or name has this.';
			list.append(none);
		}
		open_list(field.value.trim() !== '');
		field.removeAttribute('aria-activedescendant');
		choose(0);
	}

	function open_list(open)
	{
		list.hidden = !open;
		field.setAttribute('aria-expanded', String(open));
	}

	field.addEventListener('input', show);
	field.addEventListener('focus', show);
	field.addEventListener('keydown', (event) =>
	{
		const moves = { ArrowDown: 1, ArrowUp: -1 };

		if (event.key in moves)
		{
			event.preventDefault();
			choose(chosen + moves[event.key]);
		}
		else if (event.key === 'Enter' && !list.hidden)
			list.querySelectorAll('[role="option"] a')[chosen]?.click();
		else if (event.key === 'Escape')
			open_list(false);
	});
	list.addEventListener('click', () => { open_list(false); field.blur(); });
	document.addEventListener('pointerdown', (event) => { if (!event.target.closest('.search')) open_list(false); });
	document.addEventListener('keydown', (event) =>
	{
		if (event.key === '/' && document.activeElement !== field)
		{
			event.preventDefault();
			field.focus();
		}
	});
}
