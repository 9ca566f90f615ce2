package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/errandq/errand"
)

// digit is a type that stands for a number.
type digit interface {
	[0]int | [1]int | [2]int | [3]int | [4]int | [5]int | [6]int | [7]int | [8]int | [9]int
}

// chore is work of one kind of many.
type chore[T, U digit] struct{ payload }

func (chore[T, U]) Kind() string {
	var tens T
	var ones U
	return fmt.Sprintf("work%d%d", len(tens), len(ones))
}

// kind is what errand's API needs for work of one kind.
type kind struct {
	args   func(payload) errand.Args
	handle func(w *errand.Worker, fn func(context.Context, *job) error)
}

func kindOf[T, U digit]() kind {
	return kind{
		args: func(p payload) errand.Args { return chore[T, U]{p} },
		handle: func(w *errand.Worker, fn func(context.Context, *job) error) {
			errand.Handle(w, func(ctx context.Context, j *errand.Job[chore[T, U]]) error {
				return fn(ctx, &job{payload: j.Args.payload, Attempt: j.Attempt})
			})
		},
	}
}

func ten[T digit]() []kind {
	return []kind{
		kindOf[T, [0]int](), kindOf[T, [1]int](), kindOf[T, [2]int](), kindOf[T, [3]int](), kindOf[T, [4]int](),
		kindOf[T, [5]int](), kindOf[T, [6]int](), kindOf[T, [7]int](), kindOf[T, [8]int](), kindOf[T, [9]int](),
	}
}

var kinds = slices.Concat(ten[[0]int](), ten[[1]int](), ten[[2]int](), ten[[3]int](), ten[[4]int]())
