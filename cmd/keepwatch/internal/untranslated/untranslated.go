// Package untranslated keeps kubectl's texts in English. Package i18n of kubectl would load a catalog of translations
// when the first package with a text is initialized: in every process whose program contains kubectl, whatever it does.
// That took a third of the start of keepwatch version, and 4 MB.
//
// Import it for its effect. It must be initialized before other packages that import i18n, and is: Go initializes
// packages in the order of their import paths, as far as their own imports allow.
package untranslated

import "k8s.io/kubectl/pkg/util/i18n"

func init() {
	if err := i18n.SetLoadTranslationsFunc(func() error { return nil }); err != nil {
		panic(err) // another package was initialized before
	}
}
