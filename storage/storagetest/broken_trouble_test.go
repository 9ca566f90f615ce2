package storagetest

import (
	"context"
	"errors"

	"github.com/errandq/errand/storage"
)

// troubled is a store with a fault in Trouble.
type troubled struct {
	*hooks
	trouble func(err error) (bool, context.Context)
}

func (s *troubled) Trouble(err error) (bool, context.Context) { return s.trouble(err) }

// troubling has f do what Trouble does, given the answer.
func troubling(f func(in *instance, err error, is bool, open context.Context) (bool, context.Context)) func(*instance) storage.Store {
	return func(in *instance) storage.Store {
		return &troubled{sound(in), func(err error) (bool, context.Context) {
			is, open := in.Trouble(err)
			return f(in, err, is, open)
		}}
	}
}

var troubleFaults = []fault{
	{"it knows any error of the kind", "trouble", troubling(func(_ *instance, err error, is bool, open context.Context) (bool, context.Context) {
		return is || errors.Is(err, storage.ErrFull), open
	})},
	{"it knows no error", "trouble", troubling(func(*instance, error, bool, context.Context) (bool, context.Context) { return false, nil })},
	{"it knows what another Store has returned", "trouble", troubling(func(_ *instance, err error, is bool, open context.Context) (bool, context.Context) {
		_, known := errors.AsType[*trouble](err)
		return is || known, open
	})},
	{"it knows an error only as it was", "trouble", troubling(func(_ *instance, err error, is bool, open context.Context) (bool, context.Context) {
		if _, as := err.(*trouble); !as { //nolint:errorlint // the error itself
			return false, nil
		}
		return is, open
	})},
	{"it knows that of its own caller", "trouble", troubling(func(_ *instance, err error, is bool, open context.Context) (bool, context.Context) {
		return is || errors.Is(err, errCalledInTx), open
	})},
	{"nothing is open", "trouble", troubling(func(_ *instance, _ error, is bool, _ context.Context) (bool, context.Context) { return is, nil })},
	{"something is always open", "trouble", troubling(func(_ *instance, _ error, is bool, open context.Context) (bool, context.Context) {
		if is && open == nil {
			open = context.Background()
		}
		return is, open
	})},
}
