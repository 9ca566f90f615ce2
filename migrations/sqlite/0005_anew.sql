-- When until began anew, since the clock was set back; 0: it counts from created_at, which is part
-- of the ID of the job and never changes.
ALTER TABLE errand_unique ADD COLUMN since INTEGER NOT NULL DEFAULT 0;
