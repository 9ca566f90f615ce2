package main

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	queue "github.com/errandq/errand"
	"github.com/errandq/errand/internal/door"
	"github.com/errandq/errand/storage"
)

// shownMessage is the message of a delivery.
type shownMessage struct {
	ID          string    `json:"id"`
	PublishedAt time.Time `json:"published_at"`
	// About is all that is kept of the message beside its body, such as its attributes.
	About json.RawMessage `json:"about,omitempty"`
	// Body is the body if it is UTF-8. If nil, BodyBase64 is.
	Body       *string `json:"body,omitempty"`
	BodyBase64 []byte  `json:"body_base64,omitempty"`
}

// messageOf returns the message that a job delivers, nil if it delivers none.
func messageOf(ctx context.Context, q *queue.Queue, job *queue.JobInfo) (*shownMessage, error) {
	for _, tag := range job.Tags {
		id, ok := strings.CutPrefix(tag, storage.MessageTag(""))
		if !ok {
			continue
		}
		topics, err := door.Open[queue.NewJob](q)
		if err != nil {
			return nil, err
		}
		m, err := topics.Message(ctx, id)
		if errors.Is(err, queue.ErrNotFound) { // it has gone with the job since
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		shown := &shownMessage{ID: m.ID, PublishedAt: m.PublishedAt.UTC(), About: m.Attributes}
		if body := string(m.Body); utf8.ValidString(body) {
			shown.Body = &body
		} else {
			shown.BodyBase64 = m.Body
		}
		return shown, nil
	}
	return nil, nil
}

// print writes the message below its job.
func (m *shownMessage) print(p *printer) {
	if m == nil {
		return
	}
	p.printf("\n%-10s %s\n%-10s %s\n", "message", safe(m.ID), "published", when(m.PublishedAt))
	if len(m.About) > 0 {
		p.printf("%-10s %s\n", "about", jsonText(m.About))
	}
	body := string(m.BodyBase64)
	if m.Body != nil {
		body = *m.Body
	}
	p.printf("%-10s %s\n", "body", safe(body))
}
