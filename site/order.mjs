// order.mjs: in which group of the navigation a document is, and where. One that is not named comes at the end of its group.
export const groups = [
	['Begin', ['README.md', 'doc/install.md', 'doc/jobs.md', 'doc/makers.md', 'doc/backfill.md', 'doc/queues.md', 'doc/gitlab.md']],
	['Look up', ['doc/reference.md', 'doc/peers.md', 'doc/performance.md', 'doc/versions.md', 'CHANGELOG.md']],
	['Operate', ['doc/operations.md', 'doc/security.md', 'SECURITY.md', 'doc/uninstall.md']],
	['Move here', ['doc/from-pg-cron.md', 'doc/from-sidekiq-cron.md']],
	['More', []],
	['Inside', ['doc/architecture.md', 'CONTRIBUTING.md']],
];

// Group and place of a document.
export function group_of(file)
{
	for (const [name, files] of groups)
		if (files.includes(file))
			return [name, files.indexOf(file)];
	if (/^doc\/from-/.test(file))
		return ['Move here', 100];
	return [/^(doc\/)?[^/]*$/.test(file) ? 'More' : 'Inside', 100];
}
