// Command api keeps the API of a checkout as that of the last release.
//
//	go run ./internal/house/api
package main

import (
	"fmt"
	"os"

	"github.com/errandq/errand/internal/house"
)

func main() {
	api, err := house.API(".")
	if err == nil {
		err = os.WriteFile(house.APIFile, []byte(house.APIText(api)), 0o600)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
