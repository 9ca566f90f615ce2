// Package topic publishes messages to subscriptions: one delivery, a job, for each
// subscription whose filter policy matches. A subscription is a webhook endpoint, or a
// kind of job of this queue.
//
//	topics, err := topic.New(q, webhooks, nil)
//	_, err = topics.Declare(ctx, topic.Topic{Name: "orders"})
//	_, err = topics.Subscribe(ctx, topic.Subscription{Topic: "orders", Endpoint: "shop"})
//	_, err = topics.Publish(ctx, "orders", topic.Message{Body: []byte(`{"order": 17}`)})
//
// A message and its deliveries are written in one transaction; with [Topics.PublishTx]
// that is one of the application. Deliveries are jobs in the queues of their endpoints,
// so what package errand has for queues holds for them: retries, holds, throttles, dead
// letters, the list of jobs. The delivery policy of a delivery is looked up when an
// attempt fails: that of the subscription, else that of the topic, else that of the
// endpoint, section by section.
//
// The model is that of Amazon SNS. The page docs/topics.md describes the package. It says
// of each attribute, header, limit and rule of the HTTP/S delivery of SNS whether it is
// the same here.
package topic
