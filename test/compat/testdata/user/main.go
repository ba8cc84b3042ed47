// The program of a user.
package main

import (
	_ "github.com/keepwatch/keepwatch/check"
	_ "github.com/keepwatch/keepwatch/informer"
	_ "github.com/keepwatch/keepwatch/operator"
	_ "github.com/keepwatch/keepwatch/operator/manager"
	_ "github.com/keepwatch/keepwatch/source/kube"
	_ "github.com/keepwatch/keepwatch/stream"
	_ "github.com/keepwatch/keepwatch/stream/transfer"

	_ "github.com/keepwatch/keepwatch/informer/clientgo"
)

func main() {}
