package sqlite

import "context"

// Hold keeps the writer busy until it is released. Calls that are made
// meanwhile share one transaction after it, in their order.
func (s *Store) Hold() (release func()) {
	held, over := make(chan struct{}), make(chan struct{})
	go func() {
		_ = s.submit(context.Background(), &request{run: func(*tx) error {
			close(held)
			<-over
			return nil
		}})
	}()
	<-held
	return func() { close(over) }
}

// Queued is how many calls wait for the writer.
func (s *Store) Queued() int { return s.Waiting() }
