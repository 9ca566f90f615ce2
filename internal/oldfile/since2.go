package main

import "github.com/errandq/errand"

func init() {
	altered = func(s *errand.Schedule) { s.RunOnStart = true }
}
