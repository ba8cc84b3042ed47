// Command site makes the documentation's site of the Markdown files that git tracks. `make site` runs it.
//
//	go run ./site -repo .. -version v0.1.0 -o ../bin/site
//
// A version has a folder in the site, with the paths of the repository: docs/sync.md is v0.1.0/docs/sync.html, and
// README.md is v0.1.0/index.html. The documents are read as they are. A link to another file of the repository leads
// to that file's page on GitHub, at the commit. A version that is not released is in the folder main. The folders of
// other versions stay: the list of versions, and the start page, which leads to the newest release, have all of them.
//
// The pages load nothing of other servers, and need no server: file:// suffices. The search reads an index, which is
// a script, since browsers refuse to read other files from file://.
//
// # Files
//
//	main.go      flags; writes the files
//	document.go  a document: its title, its headings, what links to it are
//	markdown.go  Markdown to HTML: headings with GitHub's anchors, links between pages
//	page.go      a page around a document; the navigation, which is the list of documents in README.md
//	index.go     the index of the search: a text a section
//	versions.go  the versions that the site has
//	assets/      the template of a page, its style, and the script of the search and of the list of versions
package main
